/** The classic door of the builder: `POST /build` with a tar. */
import { randomUUID } from 'node:crypto';
import { posix } from 'node:path';
import { StringDecoder } from 'node:string_decoder';
import { COMMAND_FAILED } from '../../actors/build/run-container.js';
import { isUnreadable } from '../../build/files/small-file.js';
import { forbidden, invalid, isEngineError } from '../../errors/engine-error.js';
import type { BuildCredentials, BuildEngine, BuildRequest, ClassicEvent } from '../../ports/build.js';
import { credentialsOf } from '../../registry/credentials.js';
import { buildLine } from '../api/build-progress.js';
import {
  buildArgs,
  buildOutputs,
  cacheImages,
  imageNames,
  labels,
  requireBuilder,
  ulimits,
} from '../api/build-query.js';
import { BuildReply } from '../build-reply.js';
import type { Exchange } from '../exchange.js';
import { route, type Route } from '../route.js';
import { type ContextParts, type OpenedContext, openContext } from './build-context.js';

export interface BuildRouteDeps extends ContextParts {
  readonly engine: BuildEngine;
  /** Builds as clients of BuildKit do. */
  readonly buildKit: {
    build(x: Exchange): Promise<void>;
    /** Gives the build of this ID up; an unknown one is no error. */
    cancel(id: string): void;
  };
}

export function buildRoutes(deps: BuildRouteDeps): Route[] {
  return [
    route('POST', '/build', (x) => build(x, deps), { body: 'archive' }),
    route('POST', '/build/cancel', (x) => {
      const id = x.query.text('id');
      if (id === '') throw invalid('build ID not provided');
      deps.engine.cancel(id);
      deps.buildKit.cancel(id);
      x.sendEmpty(200);
    }),
  ];
}

/** A quiet build that fails shows so much of its output. */
const MAX_KEPT_CHARS = 1024 * 1024;

type Options = Omit<BuildRequest, 'dockerfile' | 'context' | 'observer'>;

async function build(x: Exchange, deps: BuildRouteDeps): Promise<void> {
  if (requireBuilder(x.query) === 'buildkit') return deps.buildKit.build(x);
  const options = optionsOf(x);
  const lines = new BuildLines(x, x.query.flag('q'));
  let opened: OpenedContext | undefined;
  try {
    opened = await openContext(x, deps, (event) => lines.add(event));
    const { context, dockerfile: name } = opened;
    if (/^\.\.(?:\/|$)/.test(posix.normalize(name))) throw outside(name);
    const text = await context.readFile(name).catch((error: unknown) => {
      throw unread(name, error);
    });
    if (text === undefined) throw invalid(`Cannot locate specified Dockerfile: ${name}`);
    if (text.length === 0) throw invalid(`the Dockerfile (${name}) cannot be empty`);
    const observer = {
      ...SILENT,
      classic: (event: ClassicEvent) => lines.add(event),
      ready: () => lines.ready(),
    };
    const running = deps.engine.start({ ...options, dockerfile: { name, text }, context, observer });
    const leave = (): void => running.cancel();
    x.signal.addEventListener('abort', leave, { once: true });
    if (x.signal.aborted) leave();
    const { imageId } = await running.result;
    lines.end(imageId);
  } catch (error) {
    lines.fail(error);
  } finally {
    await opened?.context.close();
  }
}

function outside(name: string): Error {
  return invalid(`forbidden path outside the build context: ${name} ()`);
}

/** The words of dockerd for a Dockerfile that is no file. */
function unread(name: string, error: unknown): unknown {
  if (!isUnreadable(error)) return error;
  return error.code === 'EISDIR' ? invalid(`unexpected error reading Dockerfile: ${error.message}`) : outside(name);
}

const SILENT = { vertex: () => undefined, status: () => undefined, log: () => undefined, warning: () => undefined };

/** The lines of a build in its reply. One that is told to be quiet shows them only when it fails. */
class BuildLines {
  readonly #reply: BuildReply;
  /** The last lines of a build that is told to be quiet, for the case that it fails. */
  readonly #kept: string[] = [];
  #keptChars = 0;
  /** Characters may lie across two pieces of output. */
  readonly #decoders = { 1: new StringDecoder('utf8'), 2: new StringDecoder('utf8') };

  constructor(
    private readonly x: Exchange,
    private readonly isQuiet: boolean,
  ) {
    this.#reply = new BuildReply(x);
  }

  add(event: ClassicEvent): void {
    if (event.kind === 'stage' && (this.isQuiet || !this.x.atLeast(1, 30))) return;
    const line = this.#lineOf(event);
    if (!this.isQuiet) this.#reply.write(line);
    else if (event.kind !== 'progress' && event.kind !== 'download') this.#keep(line);
  }

  ready(): Promise<void> {
    return this.#reply.ready();
  }

  #lineOf(event: ClassicEvent): string {
    if (event.kind !== 'output') return buildLine(event);
    const text = this.#decoders[event.stream].write(event.bytes);
    return text === '' ? '' : buildLine({ ...event, bytes: Buffer.from(text) });
  }

  #keep(line: string): void {
    this.#kept.push(line);
    this.#keptChars += line.length;
    while (this.#keptChars > MAX_KEPT_CHARS) this.#keptChars -= this.#kept.shift()?.length ?? 0;
  }

  end(imageId: string | undefined): void {
    if (this.isQuiet) this.#reply.write(buildLine({ kind: 'text', text: `${imageId ?? ''}\n` }));
    this.#reply.end();
  }

  fail(error: unknown): void {
    // A command that could not be started has no exit code for clients.
    const code = isEngineError(error) && error.code === COMMAND_FAILED ? error.details['exitCode'] : undefined;
    if (this.#kept.length > 0) this.#reply.write(this.#kept.join(''));
    this.#reply.fail(error, typeof code === 'number' ? code : undefined);
  }
}

function optionsOf(x: Exchange): Options {
  const { query } = x;
  // The classic builder makes an image whatever they say, and refuses only what cannot be read, as dockerd's does.
  if (x.atLeast(1, 40)) buildOutputs(query);
  const limit = (key: string): number => query.integer(key) ?? 0;
  const flagged = (key: string): boolean => query.flag(key);
  return {
    id: query.text('buildid') || randomUUID(),
    namedContexts: new Map(),
    target: query.text('target'),
    buildArgs: buildArgs(query),
    labels: labels(query),
    platforms: x.atLeast(1, 32) && query.text('platform') !== '' ? [query.text('platform')] : [],
    noCache: flagged('nocache') ? 'all' : undefined,
    pull: flagged('pull'),
    run: {
      networkMode: query.text('networkmode'),
      extraHosts: query.all('extrahosts').filter((host) => host !== ''),
      shmSize: limit('shmsize'),
      ulimits: ulimits(query),
      cgroupParent: query.text('cgroupparent'),
      hostname: '',
      memory: limit('memory'),
      memorySwap: limit('memswap'),
      cpuShares: limit('cpushares'),
      cpuPeriod: limit('cpuperiod'),
      cpuQuota: limit('cpuquota'),
      cpusetCpus: query.text('cpusetcpus'),
      cpusetMems: query.text('cpusetmems'),
      entitlements: [],
    },
    classic: {
      removeContainers: query.flagOr('rm', true),
      forceRemove: flagged('forcerm'),
      squash: flagged('squash'),
    },
    cacheFrom: cacheImages(query).map((ref) => ({ type: 'image', attributes: new Map([['ref', ref]]) })),
    inlineCache: false,
    cacheTo: [],
    outputs: [{ kind: 'image', names: imageNames(query) }],
    secret: () => Promise.resolve(undefined),
    sshAgent: () => Promise.reject(forbidden('no agent')),
    credentials: credentialsFrom(x.header('x-registry-config')),
  };
}

/** Reads the credentials of all registries; what cannot be read means none. */
function credentialsFrom(header: string | undefined): (host: string) => Promise<BuildCredentials | undefined> {
  const byHost = new Map<string, BuildCredentials | undefined>();
  try {
    const value: unknown = JSON.parse(Buffer.from(header ?? '', 'base64').toString('utf8'));
    if (typeof value === 'object' && value !== null)
      for (const [host, one] of Object.entries(value)) byHost.set(hostOf(host), credentialsOf(one));
  } catch {
    // Clients send all kinds of headers; dockerd ignores a bad one, too.
  }
  return (host) => Promise.resolve(byHost.get(host));
}

function hostOf(written: string): string {
  const host = written.replace(/^https?:\/\//, '').split('/', 1)[0] ?? '';
  return host === 'index.docker.io' ? 'docker.io' : host;
}
