/** Files that ADD and named contexts take from addresses and repositories. */
import type { AddInstruction, LineRange } from '../../../build/dockerfile/ast.js';
import { DockerfileError } from '../../../build/dockerfile/dockerfile-error.js';
import { isRemote } from '../../../build/dockerfile/validate.js';
import { parseGitReference, withoutLogin } from '../../../build/sources/git-url.js';
import { sourcePath } from '../../../build/sources/http-source.js';
import { isEngineError } from '../../../errors/engine-error.js';
import type { LoadedSource, RemoteOrder } from '../../../ports/build-sources.js';
import { prefixedForClient } from './failure.js';
import { newStep, type PlannedStep, type StepWork } from './step.js';

export { isRemote };

/** Codes of failures that come later than BuildKit's look at the source. */
const LATE = new Set(['DIGEST_MISMATCH', 'BAD_SUBDIR']);

export interface RemoteSource {
  readonly step: PlannedStep;
  /** The paths of its files that are copied. */
  readonly paths: readonly string[];
}

/** Returns the step that fetches a source of ADD. @param name of the instruction. @throws DockerfileError. */
export function remoteSource(url: string, instruction: AddInstruction, name: string): RemoteSource {
  const { lines, checksum, keepGitDir } = instruction;
  const isRepository = isGit(url, lines);
  const step = remoteStep({ url, checksum, keepGitDir }, name);
  return { step, paths: [isRepository ? '/' : sourcePath(url)] };
}

/** Returns the step that fetches all files of a named context. Archives are unpacked. @throws DockerfileError. */
export function remoteContextStep(context: string, url: string, lines: LineRange): PlannedStep {
  const shown = withoutLogin(url);
  const name = isGit(url, lines) ? `[internal] load git source ${shown}` : `[context ${context}] ${shown}`;
  return remoteStep({ url, checksum: '', keepGitDir: undefined, unpacks: true }, name);
}

function isGit(url: string, lines: LineRange): boolean {
  try {
    return parseGitReference(url) !== undefined;
  } catch (error) {
    throw isEngineError(error) ? new DockerfileError(error.message, lines) : error;
  }
}

function remoteStep(order: RemoteOrder, name: string): PlannedStep {
  return newStep({
    name,
    operation: {
      identity: ['remote', order.url, order.checksum, order.keepGitDir ?? null, order.unpacks ?? false],
      recipe: { operation: { source: { identifier: withoutLogin(order.url) } } },
      perform: async (work) => {
        const loaded = await load(order, work);
        work.tools.atEnd(() => loaded.release());
        const { directory, key, digest } = loaded;
        work.tools.materials.set(work.step.digest, { uri: withoutLogin(order.url), digest });
        return { layer: undefined, files: { directory, ignore: [], isMapped: false, key } };
      },
    },
    parent: undefined,
    sources: [],
    lines: undefined,
    isFresh: false,
  });
}

async function load(order: RemoteOrder, { tools, step, signal }: StepWork): Promise<LoadedSource> {
  const { request, deps } = tools;
  const { secret, sshAgent, observer } = request;
  const status = { id: 'downloading', vertex: step.digest, name: 'downloading', started: Date.now() };
  const progress = (current: number, total = 0): void => observer.status({ ...status, current, total });
  const output = (stream: 1 | 2, bytes: Buffer): void => observer.log(step.digest, stream, bytes);
  try {
    return await deps.sources.load({ ...order, secret, sshAgent, progress, output }, signal);
  } catch (error) {
    if (!isEngineError(error) || error.kind === 'cancelled' || LATE.has(error.code ?? '')) throw error;
    throw prefixedForClient(error, 'failed to load cache key: ');
  }
}
