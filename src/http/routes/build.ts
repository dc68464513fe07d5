/** The classic door of the builder: `POST /build` with a tar. */
import { randomUUID } from 'node:crypto';
import { StringDecoder } from 'node:string_decoder';
import { forbidden, invalid, isEngineError, messageOf, notImplemented } from '../../errors/engine-error.js';
import { familiarString, parseReference, withDefaultTag } from '../../images/reference.js';
import type { BuildCredentials, BuildEngine, BuildRequest, CacheSource, ClassicEvent } from '../../ports/build.js';
import type { Ulimit } from '../../ports/container.js';
import { credentialsOf } from '../../registry/credentials.js';
import { buildFailure, buildLine } from '../api/build-progress.js';
import type { Exchange } from '../exchange.js';
import type { ResponseStream } from '../response-stream.js';
import { route, type Route } from '../route.js';
import { type ContextParts, type OpenedContext, openContext } from './build-context.js';

export interface BuildRouteDeps extends ContextParts {
  readonly engine: BuildEngine;
}

export function buildRoutes(deps: BuildRouteDeps): Route[] {
  return [
    route('POST', '/build', (x) => build(x, deps), { body: 'archive' }),
    route('POST', '/build/cancel', (x) => {
      const id = x.query.text('id');
      if (id === '') throw invalid('build ID not provided');
      deps.engine.cancel(id);
      x.sendEmpty(200);
    }),
  ];
}

/** A quiet build that fails shows so much of its output. */
const MAX_KEPT_CHARS = 1024 * 1024;

type Options = Omit<BuildRequest, 'dockerfile' | 'context' | 'observer'>;

async function build(x: Exchange, deps: BuildRouteDeps): Promise<void> {
  const options = optionsOf(x);
  const lines = new BuildLines(x, x.query.flag('q'));
  let opened: OpenedContext | undefined;
  try {
    opened = await openContext(x, deps, (event) => lines.add(event));
    const { context, dockerfile: name } = opened;
    const text = await context.readFile(name);
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

const SILENT = { vertex: () => undefined, status: () => undefined, log: () => undefined, warning: () => undefined };

/** The reply, which begins with the first line; a build that fails before has an ordinary error. */
class BuildLines {
  #stream: ResponseStream | undefined;
  /** The last lines of a build that is told to be quiet, for the case that it fails. */
  readonly #kept: string[] = [];
  #keptChars = 0;
  /** Characters may lie across two pieces of output. */
  readonly #decoders = { 1: new StringDecoder('utf8'), 2: new StringDecoder('utf8') };

  constructor(
    private readonly x: Exchange,
    private readonly isQuiet: boolean,
  ) {}

  add(event: ClassicEvent): void {
    if (event.kind === 'stage' && (this.isQuiet || !this.x.atLeast(1, 30))) return;
    const line = this.#lineOf(event);
    if (!this.isQuiet) this.#open().write(line);
    else if (event.kind !== 'progress' && event.kind !== 'download') this.#keep(line);
  }

  ready(): Promise<void> {
    return this.#stream?.ready() ?? Promise.resolve();
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
    const stream = this.#open();
    if (this.isQuiet) stream.write(buildLine({ kind: 'text', text: `${imageId ?? ''}\n` }));
    stream.end();
  }

  fail(error: unknown): void {
    const hasBegun = this.#stream !== undefined || this.#kept.length > 0;
    if (!hasBegun) throw error;
    const code = isEngineError(error) ? error.details['exitCode'] : undefined;
    this.x.noteFailure();
    const stream = this.#open();
    if (this.isQuiet) stream.write(this.#kept.join(''));
    stream.write(buildFailure(messageOf(error), typeof code === 'number' ? code : undefined));
    stream.end();
  }

  #open(): ResponseStream {
    this.#stream ??= this.x.stream(200, { 'Content-Type': 'application/json' });
    return this.#stream;
  }
}

function optionsOf(x: Exchange): Options {
  const { query } = x;
  if (query.text('version') === '2') throw notImplemented('this engine has no BuildKit behind this operation yet');
  if (!['', '1', '2'].includes(query.text('version')))
    throw invalid(`invalid version ${JSON.stringify(query.text('version'))}`);
  if (query.all('securityopt').some((option) => option !== ''))
    throw invalid('security options are not supported on linux');
  if (query.flag('squash')) throw invalid('squash is only supported with experimental mode');
  if (!['', 'default'].includes(query.text('isolation')))
    throw invalid(`unsupported isolation: ${JSON.stringify(query.text('isolation'))}`);
  const limit = (key: string): number => query.integer(key) ?? 0;
  const flagged = (key: string): boolean => query.flag(key);
  return {
    id: query.text('buildid') || randomUUID(),
    namedContexts: new Map(),
    target: query.text('target'),
    buildArgs: new Map(
      [...members(query.text('buildargs'), 'build args')].map(([key, value]) => [key, value ?? undefined]),
    ),
    labels: new Map([...members(query.text('labels'), 'labels')].map(([key, value]) => [key, value ?? ''])),
    platforms: x.atLeast(1, 32) && query.text('platform') !== '' ? [query.text('platform')] : [],
    noCache: flagged('nocache') ? 'all' : undefined,
    pull: flagged('pull'),
    run: {
      networkMode: query.text('networkmode'),
      extraHosts: query.all('extrahosts').filter((host) => host !== ''),
      shmSize: limit('shmsize'),
      ulimits: ulimitsOf(query.text('ulimits')),
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
    cacheFrom: cacheSources(query.text('cachefrom')),
    inlineCache: false,
    cacheTo: [],
    outputs: [{ kind: 'image', names: namesOf(query.all('t')) }],
    secret: () => Promise.resolve(undefined),
    sshAgent: () => Promise.reject(forbidden('no agent')),
    credentials: credentialsFrom(x.header('x-registry-config')),
  };
}

/** Reads the images whose histories serve as the cache. */
function cacheSources(text: string): CacheSource[] {
  const names = text === '' ? [] : (parsed(text, 'cache-from') ?? []);
  if (!Array.isArray(names) || !names.every((name) => typeof name === 'string'))
    throw invalid('error reading cache-from: not a list of strings');
  return names.map((ref: string) => ({ type: 'image', attributes: new Map([['ref', ref]]) }));
}

function namesOf(written: readonly string[]): string[] {
  const names = written
    .filter((name) => name !== '')
    .map((name) => {
      const reference = parseReference(name);
      if (reference.digest !== undefined) throw invalid('build tag cannot contain a digest');
      return familiarString(withDefaultTag(reference));
    });
  return [...new Set(names)];
}

/** Reads a JSON object of strings. */
function members(text: string, shown: string): Map<string, string | null> {
  if (text === '') return new Map();
  const value = parsed(text, shown);
  if (value === null) return new Map();
  const isMap = typeof value === 'object' && !Array.isArray(value);
  if (!isMap || !Object.values(value).every((one) => one === null || typeof one === 'string'))
    throw invalid(`error reading ${shown}: not an object of strings`);
  return new Map(Object.entries(value) as [string, string | null][]);
}

/** Reads the limits. Clients of Go write a list without members as `null`. */
function ulimitsOf(text: string): Ulimit[] {
  const value = text === '' ? [] : (parsed(text, 'ulimit settings') ?? []);
  if (!Array.isArray(value)) throw invalid('error reading ulimit settings: not a list');
  return value.map((one: unknown) => {
    const { Name, Soft, Hard } = (one ?? {}) as Partial<Record<keyof Ulimit, unknown>>;
    if (typeof Name !== 'string' || typeof Soft !== 'number' || typeof Hard !== 'number')
      throw invalid('error reading ulimit settings: a limit has a name and two numbers');
    return { Name, Soft, Hard };
  });
}

function parsed(text: string, shown: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    throw invalid(`error reading ${shown}: ${messageOf(error)}`, { cause: error });
  }
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
