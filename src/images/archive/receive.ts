/** Takes an archive of images from a client: a worker reads it and unpacks every layer into a staged one. */
import { MessageChannel } from 'node:worker_threads';
import { cancelled } from '../../errors/engine-error.js';
import type { PieceSource } from '../../ports/archives.js';
import type { LayerStore } from '../../ports/storage.js';
import { hostPlatform, type Platform } from '../../registry/platform.js';
import { sendPieces } from '../../storage/send-pieces.js';
import { storageError } from '../../storage/storage-error.js';
import type { WorkerPool } from '../../workers/pool.js';
import type { ArchiveOrder, ArchiveReport } from '../../workers/read-archive.js';
import type { PlannedImage } from './plan.js';
import { StagedPlaces } from './staged-places.js';
import { usableBytes } from '../../sys/files/usable-bytes.js';

export interface ReceiveDeps {
  readonly layers: LayerStore;
  readonly pool: WorkerPool;
  /** A directory on the file system of the layers. */
  readonly dataRoot: string;
  /** A directory for the files of layers as they are in the archive; undefined: nobody wants them. */
  readonly blobDir?: string | undefined;
}

export interface ReceiveRequest {
  readonly source: PieceSource;
  readonly platform: Platform | undefined;
  /** If true, the images of all platforms of an index are wanted, not only that which suits this machine. */
  readonly isWhole: boolean;
  readonly signal: AbortSignal;
}

/** Called with the bytes read of a layer file in the archive. */
export type ReceiveProgress = (path: string, bytes: number, totalBytes: number) => void;

export interface ReceivedArchive {
  /** The images in the order of the archive. */
  readonly images: readonly PlannedImage[];
  readonly staged: StagedPlaces;
}

/**
 * Reads the archive to its end; with a platform, only images that it can run are wanted. Throws `invalid` for bytes
 * that are no archive, `data-loss` for a damaged one, `cancelled` when the signal aborts; nothing is left then.
 */
export async function receiveArchive(
  { layers, pool, dataRoot, blobDir }: ReceiveDeps,
  { source, platform, isWhole, signal }: ReceiveRequest,
  onProgress: ReceiveProgress,
): Promise<ReceivedArchive> {
  const { port1: near, port2: far } = new MessageChannel();
  const { port1: nearBytes, port2: bytes } = new MessageChannel();
  const order = (message: ArchiveOrder): void => near.postMessage(message, []);
  let isOver = false;
  const staged = await StagedPlaces.open(layers, blobDir);
  near.on('message', (report: ArchiveReport) => {
    if (report.type === 'progress') onProgress(report.path, report.bytes, report.totalBytes);
    // When the reading has ended, nobody waits for a place any more.
    else if (!isOver) staged.make(order);
  });
  const closed = new Promise<void>((resolve) => near.once('close', resolve));
  const cancel = (): void => {
    order({ type: 'cancel' });
    nearBytes.close();
  };
  signal.addEventListener('abort', cancel, { once: true });

  try {
    const maxTarBytes = await usableBytes(dataRoot);
    signal.throwIfAborted();
    const reading = pool
      .run(
        'read-archive',
        { port: far, bytes, maxTarBytes, platform, isWhole, host: hostPlatform() },
        { transferList: [far, bytes] },
      )
      .finally(() => {
        isOver = true;
        nearBytes.close();
      });
    // When the client breaks off, the worker must stop waiting.
    const fed = sendPieces(source, nearBytes).catch((error: unknown) => {
      cancel();
      throw error;
    });
    const [images] = await Promise.all([reading, fed]).catch(async (error: unknown) => {
      await Promise.allSettled([reading]);
      throw error;
    });
    // The worker has closed its end, but its last messages are still on their way.
    await closed;
    await staged.settled();
    return { images, staged };
  } catch (error) {
    await staged.settled();
    await staged.discard();
    throw signal.aborted
      ? cancelled('the client went away before the end of the archive', { cause: error })
      : storageError(error, 'loading images');
  } finally {
    signal.removeEventListener('abort', cancel);
    near.close();
    nearBytes.close();
  }
}
