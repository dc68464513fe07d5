/**
 * Task: the blob of one layer from the registry into a file, while the layer below is not whole yet. When that is, the
 * task is told where to unpack, and unpacks from the file, behind the download. For a blob that is whole before, there
 * is a second task, so that no thread is kept by what waits.
 */
import { setImmediate as turn } from 'node:timers/promises';
import { dataLoss, internal } from '../errors/engine-error.js';
import type { PartialPlace } from '../registry/partial-blobs.js';
import type { ExtractResult } from '../storage/tar/layer-extractor.js';
import { BlobCheck } from './blob-check.js';
import { chunkDied } from './buffer-collector.js';
import { BlobDownload } from './download-blob.js';
import { failureOf, type FetchLayerReport, type LayerSource } from './fetch-layer.js';
import { type LayerPlace, LayerUnpacking } from './layer-unpacking.js';
import { PartialFile } from './partial-file.js';
import { TaskLink } from './task-link.js';

export interface FetchAheadInput extends LayerSource {
  readonly partial: PartialPlace;
}

/** Undefined: the blob is whole in the file, and has the right digest, before it was known where to unpack it. */
export type FetchAheadOutput = ExtractResult | undefined;

const READ_BYTES = 256 << 10;

/**
 * The task is told a `LayerPlace`. Throws as `fetchLayer`, and `internal` with the code `NOT_KEPT` when the file cannot
 * take the blob.
 */
export function fetchAhead(input: FetchAheadInput): Promise<FetchAheadOutput> {
  return withFile(input, async (link, file) => {
    try {
      return await fetch(input, link, file);
    } catch (error) {
      throw failureOf(error, link.signal, file);
    }
  });
}

/** Unpacks a blob that is whole in the file, and had the right digest: then the file is no reason for failures. */
export function unpackKept(input: FetchAheadInput & { readonly place: LayerPlace }): Promise<ExtractResult> {
  return withFile(input, async (link, file) => {
    try {
      if (file.resumedBytes !== input.sizeBytes)
        throw dataLoss(`layer ${input.digest} is gone from the disk`, { code: 'PARTIAL_DAMAGED' });
      const reader = new Behind(input, input.place, file, link.signal);
      await reader.run((bytes) => link.progress({ type: 'unpacking', bytes }));
      link.report({ type: 'unpacking', bytes: input.sizeBytes });
      return await reader.finish();
    } catch (error) {
      throw failureOf(error, link.signal, undefined);
    }
  });
}

async function withFile<T>(
  input: FetchAheadInput,
  work: (link: TaskLink<FetchLayerReport>, file: PartialFile) => Promise<T>,
): Promise<T> {
  const link = new TaskLink<FetchLayerReport>(input.port);
  let file: PartialFile | undefined;
  try {
    file = await PartialFile.open(input.partial, input).catch((cause: unknown) => notKept(input, cause));
    return await work(link, file);
  } finally {
    file?.close();
    link.close();
  }
}

function notKept({ digest }: FetchAheadInput, cause?: unknown): never {
  throw internal(`the blob of layer ${digest} cannot be kept`, { code: 'NOT_KEPT', cause });
}

async function fetch(
  input: FetchAheadInput,
  link: TaskLink<FetchLayerReport>,
  file: PartialFile,
): Promise<FetchAheadOutput> {
  const over = new AbortController();
  let behind: Behind | undefined;
  let unpacked: Promise<void> | undefined;
  const begin = (place: LayerPlace): Promise<void> => {
    behind = new Behind(input, place, file, AbortSignal.any([link.signal, over.signal]));
    return behind.run();
  };
  void link.told.then((place) => {
    if (over.signal.aborted) return;
    unpacked = (async () => begin(place as LayerPlace))();
    // It is thrown below; a fault of this host ends the download, too.
    unpacked.catch((error: unknown) => over.abort(error));
  });
  try {
    const check = await download(input, link, file, () => {
      over.signal.throwIfAborted();
      behind?.arrived();
    });
    await check.verify();
    if (!unpacked) return undefined;
    link.report({ type: 'extracting', bytes: check.bytes });
    await unpacked;
    return await behind?.finish();
  } catch (error) {
    throw over.signal.aborted ? over.signal.reason : error;
  } finally {
    over.abort();
    await unpacked?.catch(() => undefined);
  }
}

/** Fetches what the file lacks. Returns the check of all its bytes. @param arrived is called after more bytes. */
async function download(
  input: FetchAheadInput,
  link: TaskLink<FetchLayerReport>,
  file: PartialFile,
  arrived: () => void,
): Promise<BlobCheck> {
  const check = new BlobCheck(input);
  const add = (chunk: Buffer): void | Promise<void> => {
    const added = check.add(chunk);
    link.progress({ type: 'downloading', bytes: check.bytes });
    if (added) return added.then(() => chunkDied(chunk));
    chunkDied(chunk);
  };
  for (const chunk of file.replay()) {
    link.signal.throwIfAborted();
    await add(chunk);
  }
  const take = (chunk: Buffer): void | Promise<void> => {
    file.append(chunk);
    if (!file.isKept) notKept(input);
    const added = add(chunk);
    arrived();
    return added;
  };
  await new BlobDownload(input, link, { take, position: () => check.bytes }, file).run();
  link.report({ type: 'downloading', bytes: check.bytes });
  link.report({ type: 'verifying' });
  return check;
}

/** Unpacks the bytes of a file that may still grow to the size of the blob. */
class Behind {
  readonly #file: PartialFile;
  readonly #sizeBytes: number;
  readonly #unpacking: LayerUnpacking;
  readonly #signal: AbortSignal;
  #wake = (): void => undefined;

  constructor(input: FetchAheadInput, place: LayerPlace, file: PartialFile, signal: AbortSignal) {
    this.#file = file;
    this.#sizeBytes = input.sizeBytes;
    this.#unpacking = new LayerUnpacking(input, place);
    this.#signal = signal;
    signal.addEventListener('abort', () => this.arrived(), { once: true });
  }

  /** More bytes are in the file. */
  arrived(): void {
    this.#wake();
  }

  /** Resolves when all bytes are passed on. After a failure nothing more is extracted. */
  async run(report: (bytes: number) => void = () => undefined): Promise<void> {
    try {
      const buffer = Buffer.allocUnsafeSlow(READ_BYTES);
      for (let at = 0; at < this.#sizeBytes;) {
        this.#signal.throwIfAborted();
        const count = this.#file.read(buffer, at);
        if (count === 0) await new Promise<void>((resolve) => (this.#wake = resolve));
        else await this.#unpacking.write(buffer.subarray(0, count));
        at += count;
        report(at);
        // The downloads of this thread get their turn.
        await turn();
      }
    } catch (error) {
      this.#unpacking.destroy();
      throw error;
    }
  }

  async finish(): Promise<ExtractResult> {
    try {
      return await this.#unpacking.finish();
    } catch (error) {
      this.#unpacking.destroy();
      throw error;
    }
  }
}
