/** One order of a frontend, with what is known of it. */
import { createHash } from 'node:crypto';
import { invalid, messageOf } from '../../errors/engine-error.js';
import { isDigest } from '../../images/reference.js';
import { duringTransfer } from '../../build/transfer-status.js';
import type { BuildContext, BuildCredentials, BuildRequest, CountBytes, NamedContext } from '../../ports/build.js';
import type { AgentSockets } from './agent-sockets.js';
import type { BuildJob } from './build-jobs.js';
import { ClientContent } from './client-content.js';
import { ClientDirectory, type DirectoryParts } from './client-directory.js';
import { readAttrs, type DockerfileAttrs } from './frontend-attrs.js';
import { credentials, secret } from './session-services.js';
import type { Session } from './session.js';
import type { SolveOrder } from './solver.js';

/** A build as its frontend has ordered it, with the services of its client. */
export interface OrderedBuild extends Pick<BuildRequest, 'secret' | 'sshAgent'> {
  readonly job: BuildJob;
  readonly attrs: DockerfileAttrs;
  readonly order: SolveOrder;
  /** Numbers of the exporters whose files the engine has handed over. */
  readonly taken: Set<number>;
  /** The answers of exporters to the client. */
  readonly response: Map<string, string>;
  /** Returns the client's directory of a name. */
  directory(name: string): ClientDirectory;
  session(): Promise<Session>;
}

export function orderedBuild(
  parts: Pick<DirectoryParts, 'sessions' | 'contexts'> & { readonly agents: AgentSockets },
  job: BuildJob,
  order: SolveOrder,
): OrderedBuild {
  const { sessions, contexts, agents } = parts;
  const { signal } = job;
  const session = (): Promise<Session> => sessions.wait(job.request.session, signal);
  return {
    job,
    order,
    taken: new Set(),
    response: new Map(),
    attrs: readAttrs(order.attrs),
    directory: (name) => {
      const sessionId = order.attrs.get(`local-sessionid:${name}`) ?? job.request.session;
      return new ClientDirectory({ sessions, contexts, sessionId, name, signal });
    },
    session,
    // A build that came without a session has nobody to ask.
    secret: async (id) => (job.request.session === '' ? undefined : secret(await session(), id, signal)),
    sshAgent: async (id) => agents.open(await session(), id),
  };
}

/** Resolves with the client's login for a registry, such as `docker.io`; undefined when it has none. */
export async function loginOf(build: OrderedBuild, host: string): Promise<BuildCredentials | undefined> {
  if (build.job.request.session === '') return undefined;
  const login = await credentials(await build.session(), host, build.job.signal);
  if (login === undefined) return undefined;
  return login.username === ''
    ? { identityToken: login.secret, serverAddress: host }
    : { username: login.username, password: login.secret, serverAddress: host };
}

/** Returns a directory of content that the client offers for a cache. */
export function clientContent({ session }: Pick<OrderedBuild, 'session'>, directory: string): ClientContent {
  return new ClientContent(session, `local:${directory}`);
}

/**
 * Presents an image in a directory of the client's as a context of the engine.
 * @param written such as `name:tag@sha256:…`, with the name that the directory has in the session.
 * @throws EngineError invalid without a digest.
 */
export function layoutContext({ session }: Pick<OrderedBuild, 'session'>, written: string): NamedContext {
  const at = written.lastIndexOf('@');
  const digest = written.slice(at + 1);
  const [store = ''] = written.slice(0, Math.max(at, 0)).split(':', 1);
  if (!isDigest(digest) || store === '')
    throw invalid(`oci-layout reference ${JSON.stringify(written.slice(0, 200))} must have a digest`);
  return { kind: 'layout', content: new ClientContent(session, `oci:${store}`), digest, shown: written };
}

/** Presents a client's directory as a context of the engine. */
export function directoryContext(directory: ClientDirectory): BuildContext {
  return {
    readFile: async (path, bytes) => {
      const file = (await directory.smallFiles([path], bytes)).get(path);
      if (file instanceof Error) throw file;
      return file;
    },
    tree: async ({ ignore, follow }, _signal, bytes = () => undefined) => {
      const kept = await directory.tree({ exclude: ignore, follow }, bytes);
      const { path, digests } = kept;
      return { directory: path, ...(digests !== undefined && { digests }), release: () => kept.release() };
    },
  };
}

/** Returns a digest for a step of the door's own, which no other build has. */
export function stepDigest(ref: string, step: string): string {
  return `sha256:${createHash('sha256').update(`${ref}\0${step}`).digest('hex')}`;
}

/** Shows a part of a step while it lasts. */
export async function inPart<T>(
  { job }: OrderedBuild,
  vertex: string,
  id: string,
  action: () => Promise<T>,
): Promise<T> {
  const status = { id, vertex, name: '', current: 0, total: 0, started: Date.now() };
  job.progress.status(status);
  const result = await action();
  job.progress.status({ ...status, completed: Date.now() });
  return result;
}

/** Shows an action as a step with a count of bytes, unless `transfer` is empty. */
export async function inStep<T>(
  { job }: Pick<OrderedBuild, 'job'>,
  name: string,
  transfer: string,
  action: (bytes: CountBytes, vertex: string) => Promise<T>,
): Promise<T> {
  const { progress, ref } = job;
  const digest = stepDigest(ref, name);
  const started = Date.now();
  progress.vertex({ digest, inputs: [], name, cached: false, started });
  try {
    const result =
      transfer === ''
        ? await action(() => undefined, digest)
        : await duringTransfer(progress, digest, transfer, (bytes) => action(bytes, digest));
    progress.vertex({ digest, inputs: [], name, cached: false, started, completed: Date.now() });
    return result;
  } catch (error) {
    progress.vertex({
      digest,
      inputs: [],
      name,
      cached: false,
      started,
      completed: Date.now(),
      error: messageOf(error),
    });
    throw error;
  }
}
