/** Puts everything of pushes together. */
import type { ImageEmit } from '../../images/removal.js';
import type { FileImageStore } from '../../images/store.js';
import type { ProgressEncoders } from '../../ports/progress.js';
import type { LayerStore } from '../../ports/storage.js';
import type { BlobRecords } from '../../registry/blob-records.js';
import type { KeptContent } from '../../registry/kept-content.js';
import type { PulledBlobs } from '../../registry/pulled-blobs.js';
import { createWorkerPool, type WorkerPool } from '../../workers/pool.js';
import type { RegistrySessions } from '../registry-session/sessions.js';
import { PushWork } from './push.effects.js';
import { Pushes } from './pushes.js';

export interface PushSystemDeps {
  readonly images: FileImageStore;
  readonly layers: LayerStore;
  readonly records: BlobRecords;
  /** Has pulled images as registries have them. */
  readonly kept?: KeptContent | undefined;
  /** Has blobs of layers as they were pulled. */
  readonly pulled?: PulledBlobs | undefined;
  readonly sessions: RegistrySessions;
  /** The pool of pushes alone, so that pulls do not wait for them. */
  readonly pool: WorkerPool;
  readonly emit: ImageEmit;
  readonly encode: ProgressEncoders['classic'];
  /** Returns the limit of this moment: a reload counts for the next push. */
  readonly maxConcurrentUploads: () => number;
  /** The n-th retry of a layer waits n times this long; 5 s unless a test is in a hurry. */
  readonly retryDelayMs?: number;
}

const RETRY_DELAY_MS = 5000;

/** Makes the pool for `createPushSystem`: few threads, because zlib's own threads compress. */
export function createPushPool(cores: number): WorkerPool {
  const maxThreads = Math.min(Math.max(cores - 1, 1), 3);
  return createWorkerPool({ maxThreads, tasksPerThread: 5 });
}

export function createPushSystem(deps: PushSystemDeps): Pushes {
  return new Pushes(
    new PushWork({
      ...deps,
      kept: deps.kept,
      retryDelayMs: deps.retryDelayMs ?? RETRY_DELAY_MS,
      accessTo: (domain, credentials) => deps.sessions.ownAccessTo(domain, credentials),
    }),
    deps.encode,
  );
}
