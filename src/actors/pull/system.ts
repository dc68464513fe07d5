/** Puts everything of pulls together: sessions, layer transfers and jobs, over the drivers. */
import type { FileImageStore } from '../../images/store.js';
import type { ImageEmit } from '../../images/removal.js';
import type { ProgressEncoders } from '../../ports/progress.js';
import type { LayerStore } from '../../ports/storage.js';
import type { Logger } from '../../ports/logger.js';
import type { BlobRecords } from '../../registry/blob-records.js';
import type { KeptContent } from '../../registry/kept-content.js';
import type { PulledBlobs } from '../../registry/pulled-blobs.js';
import type { PartialBlobs } from '../../registry/partial-blobs.js';
import type { RegistryRules } from '../../registry/endpoint.js';
import { DEFAULT_LIMITS, type HttpLimits } from '../../registry/http.js';
import { probe } from '../../registry/probe.js';
import { authorize } from '../../registry/token.js';
import { createWorkerPool, type WorkerPool } from '../../workers/pool.js';
import type { Replies } from '../kit/replies.js';
import { createSessionMachine } from '../registry-session/registry-session.machine.js';
import { RegistryQueries } from '../registry-session/queries.js';
import { RegistrySessions } from '../registry-session/sessions.js';
import { LayerTransfers } from './layer.effects.js';
import { LayerViews } from './layer-view.js';
import { SharedLayers } from './layers.js';
import { PullBoards } from './pull-boards.js';
import { PullWork } from './pull.effects.js';
import { Pulls } from './pulls.js';

export interface PullSystemDeps {
  readonly replies: Replies;
  readonly log: Logger;
  readonly images: FileImageStore;
  readonly layers: LayerStore;
  /**
   * Runs the layer transfers, `maxTransfers` at a time, and completes their layers. Pulls have a pool of their own, so
   * that nothing else delays them.
   */
  readonly pool: WorkerPool;
  readonly maxTransfers: number;
  readonly emit: ImageEmit;
  readonly encoders: ProgressEncoders;
  readonly records: BlobRecords;
  readonly partials: PartialBlobs;
  /** Keeps images as registries have them. */
  readonly kept?: KeptContent | undefined;
  readonly pulled?: PulledBlobs | undefined;
  /** These three are asked anew for every pull, so that a reload counts for the next one. */
  readonly rules: () => RegistryRules;
  readonly maxConcurrentDownloads: () => number;
  readonly maxAttempts: () => number;
  readonly limits?: HttpLimits;
  /** The n-th retry of a layer waits n times this long; 5 s unless a test is in a hurry. */
  readonly retryDelayMs?: number;
  /** Told for metrics that a blob came whole from a registry, or that a pull has failed. */
  readonly observer?: { received(bytes: number): void; failed(error: unknown): void } | undefined;
}

export interface PullSystem {
  readonly sessions: RegistrySessions;
  readonly queries: RegistryQueries;
  readonly transfers: SharedLayers;
  readonly pulls: Pulls;
}

const RETRY_DELAY_MS = 5000;

/** Transfers in a thread. */
const TRANSFERS = 3;
/** Tasks that unpack what was fetched ahead, and short ones that complete layers, find room beside them. */
const TASKS = 2 * TRANSFERS;

/** Makes the pool for `createPullSystem`: few threads with several transfers each, because each thread costs memory. */
export function createTransferPool(cores: number): { readonly pool: WorkerPool; readonly maxTransfers: number } {
  const maxThreads = Math.min(Math.max(cores - 1, 1), 3);
  return {
    pool: createWorkerPool({ maxThreads, tasksPerThread: TASKS }),
    maxTransfers: maxThreads * TRANSFERS,
  };
}

/** Puts the parts together. The two collections must be started as children of the root actor, and connected to it. */
export function createPullSystem(deps: PullSystemDeps): PullSystem {
  const { replies, log, images, layers, pool, emit } = deps;
  const limits = deps.limits ?? DEFAULT_LIMITS;
  const sessions = new RegistrySessions(
    { replies, log, limits, rules: deps.rules },
    createSessionMachine(
      {
        probe: (host, signal) => probe(host, deps.rules().certsDir, { limits, signal }),
        authorize: (request, signal) => authorize(request, { limits, signal }),
      },
      replies,
    ),
  );

  const views = new LayerViews();
  const transferring = new LayerTransfers({
    layers,
    partials: deps.partials,
    kept: deps.kept,
    pulled: deps.pulled,
    pool,
    access: (host, credentials) => sessions.access(host, credentials),
    publish: (chainId, view) => views.publish(chainId, view),
    maxAttempts: deps.maxAttempts,
    maxTransfers: deps.maxTransfers,
    retryDelayMs: deps.retryDelayMs ?? RETRY_DELAY_MS,
    onReceived: deps.observer && ((bytes) => deps.observer?.received(bytes)),
  });
  const transfers = new SharedLayers(transferring, views, layers, log);
  const boards = new PullBoards(deps.encoders);
  const work = new PullWork({
    images,
    layers,
    records: deps.records,
    kept: deps.kept,
    transfers,
    accessTo: (domain, credentials) => sessions.accessTo(domain, credentials),
    progress: (job) => boards.progress(job),
    emit,
    maxConcurrentDownloads: deps.maxConcurrentDownloads,
  });
  const pulls = new Pulls({
    replies,
    log,
    work,
    boards,
    onFailed: (error) => deps.observer?.failed(error),
    encoders: deps.encoders,
  });
  return { sessions, transfers, pulls, queries: new RegistryQueries(sessions, deps.rules, limits) };
}
