/**
 * Task: one layer from the registry into its directory, in a single pass. The blob streams through sha256,
 * decompression, a second sha256 and extraction. A broken download goes on with a range request, because the states of
 * both hashes, of the inflater and of the extractor are still here. For a task that ends before the blob does, the
 * blob's bytes are also kept on disk: the next one reads them from there first.
 */
import type { MessagePort } from 'node:worker_threads';
import { cancelled, dataLoss } from '../errors/engine-error.js';
import { isFaultOfContent, type PartialPlace } from '../registry/partial-blobs.js';
import type { ExtractResult } from '../storage/tar/layer-extractor.js';
import { BlobCheck } from './blob-check.js';
import { chunkDied } from './buffer-collector.js';
import { BlobDownload, type BlobInput } from './download-blob.js';
import { type LayerNames, type LayerPlace, LayerUnpacking } from './layer-unpacking.js';
import { PartialFile } from './partial-file.js';
import { TaskLink } from './task-link.js';

/** A layer that comes from a registry. */
export interface LayerSource extends BlobInput, LayerNames {
  readonly port: MessagePort;
}

export interface FetchLayerInput extends LayerSource, LayerPlace {
  /** Where the blob is kept until the layer is complete; undefined: nowhere. */
  readonly partial: PartialPlace | undefined;
}

export type FetchLayerOutput = ExtractResult;

/** Messages from the task to the main thread, besides what every transfer reports. */
export type FetchLayerReport =
  | { readonly type: 'verifying' }
  /** Bytes of the blob. */
  | { readonly type: 'downloading'; readonly bytes: number }
  /** Begins when the whole blob has the right digest. */
  | { readonly type: 'extracting'; readonly bytes: number }
  /** So much of a blob that was fetched before is extracted. */
  | { readonly type: 'unpacking'; readonly bytes: number };

/**
 * Fetches and extracts. Throws `data-loss` for a wrong digest, size or stream, `cancelled` on order, the registry's
 * errors when its attempts are spent, and the extractor's errors. The caller deletes what was extracted so far.
 */
export async function fetchLayer(input: FetchLayerInput): Promise<FetchLayerOutput> {
  const link = new TaskLink<FetchLayerReport>(input.port);
  const unpacking = new LayerUnpacking(input, input, { isGathered: true });
  const check = new BlobCheck(input, (piece) => unpacking.write(piece));
  const write = (chunk: Buffer): void | Promise<void> => {
    const added = check.add(chunk);
    if (added) return added.then(() => chunkDied(chunk));
    chunkDied(chunk);
  };
  // The layer can do without.
  const partial = input.partial && (await PartialFile.open(input.partial, input).catch(() => undefined));
  try {
    for (const chunk of partial?.replay() ?? []) {
      link.signal.throwIfAborted();
      await write(chunk);
      link.progress({ type: 'downloading', bytes: check.bytes });
    }
    const take = (chunk: Buffer): void | Promise<void> => {
      partial?.append(chunk);
      const taken = write(chunk);
      link.progress({ type: 'downloading', bytes: check.bytes });
      return taken;
    };
    await new BlobDownload(input, link, { take, position: () => check.bytes }, partial).run();
    link.report({ type: 'downloading', bytes: check.bytes });
    link.report({ type: 'verifying' });
    await check.verify();
    link.report({ type: 'extracting', bytes: check.bytes });
    return await unpacking.finish();
  } catch (error) {
    unpacking.destroy();
    throw failureOf(error, link.signal, partial);
  } finally {
    partial?.close();
    link.close();
  }
}

/** Returns what the failure of such a task is for its caller. */
export function failureOf(
  error: unknown,
  signal: AbortSignal,
  partial: Pick<PartialFile, 'resumedBytes'> | undefined,
): unknown {
  if (signal.aborted) return cancelled('the layer is not wanted any more');
  // The bytes that were left on disk may be the reason.
  if ((partial?.resumedBytes ?? 0) > 0 && isFaultOfContent(error))
    return dataLoss(error.message, { code: 'PARTIAL_DAMAGED', cause: error });
  return error;
}
