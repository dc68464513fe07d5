/** Takes an archive of images from a client: a worker reads it, every layer in it is staged. */
import { statfs } from 'node:fs/promises';
import { MessageChannel } from 'node:worker_threads';
import { cancelled } from '../../errors/engine-error.js';
import type { LayerStore, StagedLayer } from '../../ports/storage.js';
import { hostPlatform, type Platform } from '../../registry/platform.js';
import { storageError } from '../../storage/storage-error.js';
import { failure } from '../../workers/outcome.js';
import type { WorkerPool } from '../../workers/pool.js';
import type { ArchiveOrder, ArchivePlace, ArchiveReport } from '../../workers/read-archive.js';
import type { PlannedImage } from './plan.js';

export interface ReceiveDeps {
  readonly layers: LayerStore;
  readonly pool: WorkerPool;
  /** On the file system of the layers. */
  readonly dataRoot: string;
}

export interface ReceiveRequest {
  readonly source: AsyncIterable<Buffer>;
  readonly platform: Platform | undefined;
  readonly signal: AbortSignal;
}

/** Bytes read of a layer file in the archive. */
export type ReceiveProgress = (path: string, bytes: number, totalBytes: number) => void;

/** Chunks on their way to the worker at once. */
const WINDOW = 8;
/** Left free on the file system: this much, or this part of a small one. */
const RESERVED_BYTES = 64 << 20;
const RESERVED_PART = 1 / 20;

export class ReceivedArchive {
  constructor(
    /** In the order of the archive. */
    readonly images: readonly PlannedImage[],
    private readonly staged: Map<number, StagedLayer>,
  ) {}

  /** Gives a staged layer away, once: the caller commits or discards it. */
  take(place: number): StagedLayer | undefined {
    const layer = this.staged.get(place);
    this.staged.delete(place);
    return layer;
  }

  /** Discards what nobody took. */
  async close(): Promise<void> {
    const rest = [...this.staged.values()];
    this.staged.clear();
    await Promise.all(rest.map((layer) => layer.discard()));
  }
}

/**
 * Reads the archive to its end; only images that `platform` runs are wanted, when it is given. Throws `invalid` for
 * what is no archive, `data-loss` for a damaged one, `cancelled` when the signal aborts; nothing is left then.
 */
export async function receiveArchive(
  { layers, pool, dataRoot }: ReceiveDeps,
  { source, platform, signal }: ReceiveRequest,
  onProgress: ReceiveProgress,
): Promise<ReceivedArchive> {
  const { port1: near, port2: far } = new MessageChannel();
  const staged = new Map<number, StagedLayer>();
  const order = (message: ArchiveOrder, transfer: ArrayBuffer[] = []): void => near.postMessage(message, transfer);
  const flow = { credit: WINDOW, isOver: false, wake: (): void => undefined };
  let places = 0;
  const placing = new Set<Promise<void>>();

  const makePlace = async (): Promise<void> => {
    try {
      const layer = await layers.stage();
      const place: ArchivePlace = {
        index: places++,
        diffDir: layer.diffDir,
        tarSplitPath: layer.tarSplitPath,
        idMaps: layer.idMaps,
      };
      staged.set(place.index, layer);
      order({ type: 'place', place: { ok: true, value: place } });
    } catch (error) {
      order({ type: 'place', place: failure(error) });
    }
  };
  near.on('message', (report: ArchiveReport) => {
    if (report.type === 'taken') {
      flow.credit++;
      flow.wake();
    } else if (report.type === 'progress') {
      onProgress(report.path, report.bytes, report.totalBytes);
    } else if (!flow.isOver) {
      // A wish that the end of its reading overtook would be granted to nobody.
      const made: Promise<void> = makePlace().finally(() => placing.delete(made));
      placing.add(made);
    }
  });
  const closed = new Promise<void>((resolve) => near.once('close', resolve));
  const cancel = (): void => order({ type: 'cancel' });
  signal.addEventListener('abort', cancel, { once: true });

  const feed = async (): Promise<void> => {
    for await (const chunk of source) {
      // Memory that is the chunk's alone moves; a piece of a pool must be copied.
      const isWhole = chunk.byteLength === chunk.buffer.byteLength && chunk.buffer instanceof ArrayBuffer;
      const bytes = isWhole ? chunk : Uint8Array.from(chunk);
      order({ type: 'chunk', chunk: bytes }, [bytes.buffer as ArrayBuffer]);
      flow.credit--;
      while (flow.credit <= 0 && !flow.isOver) await new Promise<void>((resolve) => (flow.wake = resolve));
      if (flow.isOver) return;
    }
    order({ type: 'chunk', chunk: null });
  };

  try {
    const { bavail, blocks, bsize } = await statfs(dataRoot);
    const reserved = Math.min(RESERVED_BYTES, blocks * bsize * RESERVED_PART);
    const maxTarBytes = Math.max(0, bavail * bsize - reserved);
    signal.throwIfAborted();
    const reading = pool
      .run('read-archive', { port: far, maxTarBytes, platform, host: hostPlatform() }, { transferList: [far] })
      .finally(() => {
        flow.isOver = true;
        flow.wake();
      });
    // A client that breaks off must end the worker's waiting.
    const fed = feed().catch((error: unknown) => {
      cancel();
      throw error;
    });
    const [images] = await Promise.all([reading, fed]).catch(async (error: unknown) => {
      await Promise.allSettled([reading]);
      throw error;
    });
    // The worker closed its end; what it said before is still on its way.
    await closed;
    await Promise.all(placing);
    return new ReceivedArchive(images, staged);
  } catch (error) {
    await Promise.all(placing);
    await new ReceivedArchive([], staged).close();
    throw signal.aborted
      ? cancelled('the client went away before the end of the archive', { cause: error })
      : storageError(error, 'loading images');
  } finally {
    signal.removeEventListener('abort', cancel);
    near.close();
  }
}
