/** Pulls without the HTTP front: the real actors, image store, workers and layer store over a private directory. */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Actor, type AnyStateMachine, createActor, createMachine } from 'xstate';
import { Replies } from '../../src/actors/kit/replies.js';
import {
  createPullSystem,
  createTransferPool,
  type PullSystem,
  type PullSystemDeps,
} from '../../src/actors/pull/system.js';
import type { PullSubscription } from '../../src/actors/pull/pull-sequence.js';
import { encodeProgress, encodeRecord } from '../../src/http/api/progress.js';
import { parseReference, withDefaultTag } from '../../src/images/reference.js';
import { FileImageStore } from '../../src/images/store.js';
import type { Logger } from '../../src/ports/logger.js';
import type { Credentials } from '../../src/registry/credentials.js';
import { BlobRecords } from '../../src/registry/blob-records.js';
import { PartialBlobs } from '../../src/registry/partial-blobs.js';
import { parsePlatform } from '../../src/registry/platform.js';
import type { WorkerPool } from '../../src/workers/pool.js';
import { DirectoryLayerStore } from './directory-layer-store.js';

export interface PullHarness extends PullSystem {
  readonly dir: string;
  readonly images: FileImageStore;
  readonly layers: DirectoryLayerStore;
  readonly pool: WorkerPool;
  /** `action id` of every event. */
  readonly events: string[];
  /** The errors that the actors have logged: crashes. */
  readonly errors: unknown[];
  start(
    name: string,
    options?: { readonly platform?: string; readonly credentials?: Credentials; readonly signal?: AbortSignal },
  ): Promise<PullSubscription>;
  stop(): Promise<void>;
}

export async function startPullHarness(overrides: Partial<PullSystemDeps> = {}): Promise<PullHarness> {
  const dir = await mkdtemp(join(tmpdir(), 'engined-pull-'));
  const errors: unknown[] = [];
  const log = logOf(errors);
  const replies = new Replies();
  const layers = new DirectoryLayerStore(join(dir, 'layers'));
  await layers.load();
  const images = new FileImageStore(dir, layers);
  await images.load();
  const { pool, maxTransfers } = createTransferPool(2);
  const events: string[] = [];
  const records = new BlobRecords(join(dir, 'distribution'));
  await records.load(new Set());
  const partials = new PartialBlobs(join(dir, 'partial'));
  await partials.load();
  const system = createPullSystem({
    replies,
    records,
    partials,
    log,
    images,
    layers,
    pool,
    maxTransfers,
    emit: (action, id) => void events.push(`${action} ${id}`),
    encoders: { classic: encodeProgress, typed: encodeRecord },
    rules: () => ({ insecure: [], mirrors: [], certsDir: join(dir, 'certs.d') }),
    maxConcurrentDownloads: () => 3,
    maxAttempts: () => 5,
    limits: { connectMs: 60_000, responseMs: 60_000, idleMs: 60_000 },
    retryDelayMs: 20,
    ...overrides,
  });
  const root = runRoot(system);
  return {
    ...system,
    dir,
    images,
    layers,
    pool,
    events,
    errors,
    start: (name, { platform, credentials, signal } = {}) =>
      system.pulls.pull(
        {
          reference: withDefaultTag(parseReference(name)),
          platform: platform === undefined ? undefined : parsePlatform(platform),
          credentials,
        },
        signal ?? new AbortController().signal,
      ),
    stop: async () => {
      root.stop();
      await pool.close();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** The actor above those of pulls and sessions, which spawns them. */
function runRoot({ sessions, pulls }: PullSystem): Actor<AnyStateMachine> {
  const collections = { sessions, pulls };
  const root = createActor(
    createMachine({
      invoke: Object.entries(collections).map(([id, { collection }]) => ({
        id,
        src: collection.logic,
        systemId: id,
      })) as never,
    }),
  );
  root.start();
  for (const [id, directory] of Object.entries(collections)) {
    const actor = root.system.get(id as never) as { send(event: unknown): void };
    directory.connect((event) => actor.send(event));
  }
  return root as Actor<AnyStateMachine>;
}

/** A log that keeps what it is told of errors. */
function logOf(errors: unknown[]): Logger {
  const log: Logger = {
    debug: () => undefined,
    info: () => undefined,
    warn: () => undefined,
    error: (fields) => void errors.push(fields),
    child: () => log,
  };
  return log;
}

export interface Line {
  readonly status?: string;
  readonly id?: string;
  readonly progress?: string;
  readonly progressDetail?: { readonly current?: number; readonly total?: number };
  readonly error?: string;
  readonly errorDetail?: { readonly message: string };
}

/** Reads a subscription to its end. */
export async function linesOf(subscription: AsyncIterable<string>): Promise<Line[]> {
  let text = '';
  for await (const piece of subscription) text += piece;
  return text
    .split('\r\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Line);
}
