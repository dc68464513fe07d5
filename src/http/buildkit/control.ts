/** BuildKit's control service: builds, their progress and history, and the cache. */
import { setImmediate as nextLoop } from 'node:timers/promises';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { isMutable } from '../../build/cache/usage-filter.js';
import { internal, isEngineError, notFound } from '../../errors/engine-error.js';
import type { CacheUsage } from '../../ports/build.js';
import { BUILDKIT_VERSION, workerRecord, type WorkerFacts } from './worker-record.js';
import type { BuildJob, BuildJobs } from './build-jobs.js';
import { GrpcCode, encode } from './grpc-messages.js';
import { byteTunnel, serverStream, unary, type CallContext, type Served } from './grpc-server.js';
import { describeError, encodeStatus, ForeignStatus } from './grpc-status.js';
import { attachmentsOf, errorAttachment } from './attachments.js';
import type { BuildHistory, BuildRecord } from './history.js';
import { historyEvents } from './history-events.js';
import { BytesMessageSchema } from './proto/gen/common_pb.js';
import { Control, type SolveRequest, type UsageRecordSchema } from './proto/gen/control_pb.js';
import { ProgressLog } from './progress-log.js';
import type { Sessions } from './session.js';
import type { Solver } from './solver.js';
import { timestamp } from './timestamp.js';

/** BuildKit's client may ask for progress before the build is known. */
const STATUS_PATIENCE_MS = 6_000;
/** A build without history is remembered so long after its end, because a client may ask for its progress late. */
const REMEMBERED_MS = 10_000;
const MAX_REF_CHARS = 256;
const NANOSECONDS_PER_MS = 1_000_000n;

export interface ControlParts {
  readonly jobs: BuildJobs;
  readonly sessions: Sessions;
  readonly history: BuildHistory;
  readonly solver: Solver;
  readonly worker: WorkerFacts;
}

export function controlMethods(parts: ControlParts): Served[] {
  const { method } = Control;
  const { solver, sessions, history, worker } = parts;
  return [
    unary(method.info, async () => ({ buildkitVersion: BUILDKIT_VERSION })),
    unary(method.listWorkers, async () => ({ record: [workerRecord(worker)] })),
    unary(method.solve, (request, context) => solve(parts, request, context)),
    serverStream(method.status, ({ ref }, context) => progressOf(parts, ref, context)),
    byteTunnel(
      method.session,
      { unpack: ({ data }) => data, pack: (data) => encode(BytesMessageSchema, { data }) },
      async (tunnel, { metadata }) => {
        const [id = ''] = metadata('x-docker-expose-session-uuid');
        const [sharedKey = ''] = metadata('x-docker-expose-session-sharedkey');
        await sessions.add({ id, sharedKey }, tunnel).client.closed;
      },
    ),
    unary(method.diskUsage, async ({ filter }) => ({
      record: (await solver.usage(realFilters(filter))).map(usageRecord),
    })),
    serverStream(method.prune, async function* (order) {
      const removed = await solver.prune({
        filters: realFilters(order.filter),
        all: order.all,
        keepMs: Number(order.keepDuration / NANOSECONDS_PER_MS),
        reservedBytes: Number(order.reservedSpace),
        maxUsedBytes: Number(order.maxUsedSpace),
        minFreeBytes: Number(order.minFreeSpace),
      });
      for (const record of removed) yield usageRecord(record);
    }),
    serverStream(method.listenBuildHistory, (request, context) => {
      context.sendMetadata(now());
      return historyEvents(history, request, context.signal);
    }),
    unary(method.updateBuildHistory, async ({ ref, pinned, delete: isDeleted, finalize }) => {
      // BuildKit does not mind one that is not there.
      if (isDeleted) await history.remove(ref).catch(unlessMissing);
      else if (!finalize) await history.pin(ref, pinned);
      return {};
    }),
  ];
}

/** Clients that mean everything send one empty text. */
function realFilters(filters: readonly string[]): string[] {
  return filters.filter((filter) => filter !== '');
}

function unlessMissing(error: unknown): void {
  if (!isEngineError(error, 'not-found')) throw error;
}

function now(): Record<string, string> {
  return { 'buildkit-current-timestamp': new Date().toISOString() };
}

function usageRecord(facts: CacheUsage): MessageInitShape<typeof UsageRecordSchema> {
  return {
    id: facts.id,
    mutable: isMutable(facts),
    inUse: facts.inUse,
    size: BigInt(facts.size),
    createdAt: timestamp(facts.createdAt),
    ...(facts.lastUsedAt !== undefined && { lastUsedAt: timestamp(facts.lastUsedAt) }),
    usageCount: BigInt(facts.usageCount),
    description: facts.description,
    recordType: facts.type,
    shared: facts.shared,
    parents: [...facts.parents],
  };
}

/** Runs a build from its begin to its end, with its record in the history. */
export async function solve(
  parts: ControlParts,
  request: SolveRequest,
  { signal }: Pick<CallContext, 'signal'>,
): Promise<{ exporterResponse: Record<string, string> }> {
  const { jobs, history } = parts;
  const { ref } = request;
  if (ref === '' || ref.length > MAX_REF_CHARS) throw internal('a build needs a reference');
  if (jobs.get(ref) !== undefined) throw internal(`job ID ${ref} exists`);
  const record = request.internal ? undefined : openRecord(request);
  // A busy disk may take longer for it than calls wait for a build that nobody has heard of.
  const log = record && (await jobs.preparing(ref, () => history.begin(record)));
  const job = jobs.begin(request, new ProgressLog(log));
  const cancel = (): void => job.cancel();
  signal.addEventListener('abort', cancel, { once: true });
  if (signal.aborted) cancel();
  let exporterResponse: Record<string, string> = {};
  let failure: { readonly error: unknown } | undefined;
  try {
    exporterResponse = await outcomeOf(parts, job);
    return { exporterResponse };
  } catch (error) {
    failure = { error };
    throw error;
  } finally {
    job.cancel();
    const logged = job.progress.end();
    logged.catch(() => undefined);
    if (record === undefined) setTimeout(() => jobs.end(job), REMEMBERED_MS).unref();
    else {
      const error = failure && encodeStatus(describeError(failure.error));
      const failed = error && { error: error.toString('base64') };
      const { counts } = job.progress;
      const ended = { ...record, completedMs: Date.now(), exporterResponse, counts, ...failed };
      void keep(parts, job, ended, { error, logged });
    }
  }
}

interface BuildEnd {
  /** google.rpc.Status */
  readonly error: Buffer | undefined;
  /** Resolves with its log, without one when that is on the disk. */
  readonly logged: Promise<Buffer | undefined>;
}

/** Puts a build that has ended into the history. The client has its answer first, and what it asks next comes later. */
async function keep(
  { history, jobs, worker }: ControlParts,
  job: BuildJob,
  ended: BuildRecord,
  { error, logged }: BuildEnd,
): Promise<void> {
  await nextLoop();
  try {
    const documents = error ? [errorAttachment(error)] : await attachmentsOf(job, worker.platforms[0]).catch(() => []);
    void history.complete(ended, documents, logged);
  } finally {
    jobs.end(job);
  }
}

/** Runs the frontend here when the client names one; else waits for the client's own frontend. */
async function outcomeOf({ solver }: ControlParts, job: BuildJob): Promise<Record<string, string>> {
  const { frontend, frontendAttrs, frontendInputs, definition } = job.request;
  if (frontend !== '') {
    const attrs = new Map(Object.entries(frontendAttrs));
    const inputs = new Map(Object.entries(frontendInputs));
    const { answer, solution } = solver.solve(job, { frontend, attrs, inputs, cacheImports: [] });
    answer.catch(() => undefined);
    return { ...(await solution).exporterResponse };
  }
  if (definition !== undefined && definition.def.length > 0)
    throw internal('this engine builds Dockerfiles only: it does not solve definitions of other frontends');
  try {
    await job.returned;
  } catch (error) {
    // A failure of ours has more to say than its copy that went through the client.
    if (error instanceof ForeignStatus) await job.outcome;
    // A client that has given up still shows which steps have ended by that.
    if (job.signal.aborted) await job.outcome?.catch(() => undefined);
    throw error;
  }
  return { ...(await job.outcome)?.exporterResponse };
}

function openRecord(request: SolveRequest): BuildRecord {
  return {
    ref: request.ref,
    frontend: request.frontend,
    frontendAttrs: request.frontendAttrs,
    exporters: request.exporters.map(({ type, attrs }) => ({ type, attrs })),
    createdMs: Date.now(),
    exporterResponse: {},
    counts: { total: 0, completed: 0, cached: 0, warnings: 0 },
    pinned: false,
  };
}

/** Yields the progress of a build that is under way, is just coming, or has ended. */
async function* progressOf(
  { jobs, history }: ControlParts,
  ref: string,
  { signal, sendMetadata }: CallContext,
): AsyncGenerator<Buffer> {
  sendMetadata(now());
  const job = jobs.get(ref);
  const ended = job === undefined ? await history.log(ref) : undefined;
  const present = job ?? (ended === undefined ? await jobs.wait(ref, STATUS_PATIENCE_MS, signal) : undefined);
  const messages = ended ?? present?.progress.read(signal);
  if (messages === undefined) throw notFound(`no such job ${ref}`, { details: { grpcCode: GrpcCode.unknown } });
  yield* messages;
}
