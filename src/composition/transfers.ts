/** Makes pulls and pushes, with the threads and the records that they share. */
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { createPullSystem, createTransferPool } from '../actors/pull/system.js';
import { createPushPool, createPushSystem } from '../actors/push/system.js';
import { encodeProgress, encodeRecord } from '../http/api/progress.js';
import { BlobRecords } from '../registry/blob-records.js';
import { MadeManifests } from '../images/made-manifests.js';
import { KeptContent } from '../registry/kept-content.js';
import { PartialBlobs } from '../registry/partial-blobs.js';
import { PulledBlobs } from '../registry/pulled-blobs.js';
import { driverPath, leaseOf, SNAPSHOTTER_FEATURE } from '../storage/drivers/index.js';
import { createWorkerPool } from '../workers/pool.js';
import type { Base } from './base.js';
import type { Drivers } from './drivers.js';

export type Transfers = ReturnType<typeof composeTransfers>;

export function composeTransfers(
  { live, dataRoot, log, replies, temporary }: Base,
  { layers, images, metrics, supervisor, emit }: Drivers,
) {
  // Archives have threads of their own, because a client that sends slowly holds its task as long as it likes.
  const archivePool = createWorkerPool({ maxThreads: 2, tasksPerThread: 16 });
  const transferPool = createTransferPool(availableParallelism());
  const blobRecords = new BlobRecords(join(dataRoot, driverPath(layers.place, 'image/distribution')));
  const { keptContent, pulledBlobs } = composeBlobs({ dataRoot, log }, { layers, images, supervisor });
  // Blobs go from there to the supervisor, so small ones are wanted too.
  const partialBlobs = new PartialBlobs(temporary.partialDir, keptContent && { minBytes: 0 });
  const pulls = createPullSystem({
    replies,
    records: blobRecords,
    partials: partialBlobs,
    kept: keptContent,
    pulled: pulledBlobs,
    log,
    images,
    layers,
    ...transferPool,
    emit: (action, id, attributes) => emit('image', action, id, attributes),
    rules: () => ({
      insecure: live.current.insecureRegistries,
      mirrors: live.current.registryMirrors,
      mirrorsFor: live.current.registryMirrorsFor,
      certsDir: live.fixed.certsDir,
    }),
    encoders: { classic: encodeProgress, typed: encodeRecord },
    maxConcurrentDownloads: () => live.current.maxConcurrentDownloads,
    maxAttempts: () => live.current.maxDownloadAttempts,
    observer: metrics.pulls,
  });
  const pushPool = createPushPool(availableParallelism());
  const pushes = createPushSystem({
    images,
    layers,
    records: blobRecords,
    kept: keptContent,
    pulled: pulledBlobs,
    sessions: pulls.sessions,
    pool: pushPool,
    encode: encodeProgress,
    emit: (action, id, attributes) => emit('image', action, id, attributes),
    maxConcurrentUploads: () => live.current.maxConcurrentUploads,
  });
  // A layer that is compressed for an archive holds its thread for long, and other work must not wait for it.
  const exportPool = createWorkerPool({ maxThreads: Math.max(availableParallelism() - 1, 1) });
  if (keptContent)
    images.giveManifests(
      new MadeManifests({ kept: keptContent, images, layers, pool: exportPool, tmpDir: temporary.tmpDir }),
    );
  return {
    archivePool,
    transferPool,
    blobRecords,
    partialBlobs,
    pulledBlobs,
    keptContent,
    pulls,
    pushPool,
    pushes,
    exportPool,
  };
}

/** Makes what keeps blobs of pulled layers: the content store of the supervisor where layers are there, else files. */
function composeBlobs(
  { dataRoot, log }: Pick<Base, 'dataRoot' | 'log'>,
  { layers, images, supervisor }: Pick<Drivers, 'layers' | 'images' | 'supervisor'>,
): { readonly keptContent?: KeptContent; readonly pulledBlobs?: PulledBlobs } {
  if (layers.place !== SNAPSHOTTER_FEATURE)
    return {
      pulledBlobs: new PulledBlobs({ dir: join(dataRoot, driverPath(layers.place, 'image/blobs')), layers, images }),
    };
  const lease = (): string => leaseOf(join(dataRoot, SNAPSHOTTER_FEATURE));
  return { keptContent: new KeptContent({ content: supervisor.content, lease, images, log }) };
}
