/** The service by which a frontend that runs in the client (buildx) has its work done here. */
import { once } from 'node:events';
import { setImmediate as nextLoop } from 'node:timers/promises';
import type { MessageInitShape } from '@bufbuild/protobuf';
import { internal, invalid } from '../../errors/engine-error.js';
import type { BuildJob, BuildJobs } from './build-jobs.js';
import { unary, type CallContext, type Served } from './grpc-server.js';
import { LLBBridge, type RefSchema, type SolveRequest, type SolveResponseSchema } from './proto/gen/gateway_pb.js';
import { definitionOf } from './references.js';
import type { Solver } from './solver.js';
import type { SourceReferences } from './source-references.js';
import { frontendCaps, llbCaps, workerRecord, type WorkerFacts } from './worker-record.js';

const BUILD_ID = 'buildkit-controlapi-buildid';
/**
 * A call waits this long for the build that it belongs to. BuildKit has three seconds, in which a busy machine does not
 * always bring the two calls of a client here.
 */
const PATIENCE_MS = 10_000;

export interface GatewayParts {
  readonly jobs: BuildJobs;
  readonly solver: Solver;
  readonly sources: SourceReferences;
  readonly worker: WorkerFacts;
}

/** Resolves when the answer of a build is on its way. */
async function answered({ signal }: BuildJob): Promise<void> {
  if (!signal.aborted) await once(signal, 'abort');
  await nextLoop();
}

export function gatewayMethods({ jobs, solver, sources, worker }: GatewayParts): Served[] {
  const { method } = LLBBridge;
  const jobOf = async ({ metadata, signal }: CallContext): Promise<BuildJob> => {
    const [ref = ''] = metadata(BUILD_ID);
    const job = await jobs.wait(ref, PATIENCE_MS, signal);
    if (job === undefined) throw internal(`no such job ${ref}`);
    return job;
  };
  return [
    unary(method.ping, async () => ({
      frontendApiCaps: frontendCaps(),
      llbCaps: llbCaps(),
      workers: [workerRecord(worker)],
    })),
    unary(method.solve, async (request, context) => solve(await jobOf(context), { solver, sources }, request)),
    unary(method.return, async ({ error }, context) => {
      const job = await jobOf(context);
      // The client tells what it hears first of a failure, and the answer of the build has the better words.
      if (job.return(error)) await answered(job);
      return {};
    }),
    // All references of a job are built together.
    unary(method.evaluate, async (_request, context) => {
      await (
        await jobOf(context)
      ).outcome;
      return {};
    }),
    unary(method.readFile, async ({ ref, filePath, range }, context) => {
      const [offset, length] = [count(range?.offset, 'offset'), count(range?.length, 'length')];
      return { data: await sources.readFile(await jobOf(context), ref, filePath, { offset, length }) };
    }),
    unary(method.readDir, async ({ ref, dirPath, includePattern }, context) => ({
      entries: await sources.readDirectory(await jobOf(context), ref, dirPath, includePattern),
    })),
    unary(method.statFile, async ({ ref, path }, context) => ({
      stat: await sources.statFile(await jobOf(context), ref, path),
    })),
  ];
}

async function solve(
  job: BuildJob,
  { solver, sources }: Pick<GatewayParts, 'solver' | 'sources'>,
  request: SolveRequest,
): Promise<MessageInitShape<typeof SolveResponseSchema>> {
  if (request.frontend === '') {
    const { definition } = request;
    if (definition !== undefined && definition.def.length > 0)
      return { result: { result: { case: 'ref', value: { id: await sources.solve(job, definition) } } } };
    return { result: { result: { case: 'ref', value: {} } } };
  }
  const { answer, solution } = solver.solve(job, {
    frontend: request.frontend,
    attrs: new Map(Object.entries(request.frontendOpt)),
    inputs: new Map(Object.entries(request.frontendInputs)),
    cacheImports: request.cacheImports,
  });
  job.outcome = solution;
  solution.catch(() => undefined);
  answer.catch(() => undefined);
  const { metadata, references = [] } = await (request.evaluate ? solution : answer);
  const refOf = (id: string): MessageInitShape<typeof RefSchema> => ({ id, def: definitionOf(id) });
  const [only, ...others] = references;
  if (others.length === 0) {
    const value = only === undefined ? {} : refOf(only.id);
    return { result: { result: { case: 'ref', value }, metadata: { ...metadata } } };
  }
  const refs = Object.fromEntries(references.map(({ platform, id }) => [platform, refOf(id)]));
  return { result: { result: { case: 'refs', value: { refs } }, metadata: { ...metadata } } };
}

/** @throws EngineError invalid for a number that is none of a range. */
function count(value: bigint | undefined, name: string): number {
  const number = Number(value ?? 0n);
  if (number < 0 || !Number.isSafeInteger(number)) throw invalid(`invalid ${name} of a range: ${number}`);
  return number;
}
