/** Calls a plugin: each call is a POST of JSON, answered by JSON. */
import { readFile } from 'node:fs/promises';
import { Agent, request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { setTimeout as sleep } from 'node:timers/promises';
import { EngineError, deadline, internal, messageOf, unavailable } from '../errors/engine-error.js';
import { PLUGIN_REFUSED } from '../ports/plugin.js';
import { connectPinned } from '../sys/net/pinned-socket.js';
import type { PluginAddress } from './plugin-spec.js';

export interface PluginLimits {
  /** Time limit from the call to the end of its answer. */
  readonly callMs: number;
  /** A plugin that cannot be reached is tried again for so long, because it may just be starting. */
  readonly retryMs: number;
}

export const PLUGIN_LIMITS: PluginLimits = { callMs: 10_000, retryMs: 5_000 };

const MEDIA_TYPE = 'application/vnd.docker.plugins.v1.2+json';
/** Calls have this host name; a plugin is found by its socket, not by a name. */
const HOST = 'plugin.moby.localhost';
/** No answer of the protocol is nearly so long. */
const MAX_ANSWER_BYTES = 1024 * 1024;
const FIRST_PAUSE_MS = 50;
const UNREACHABLE = new Set(['ECONNREFUSED', 'ENOENT', 'EAGAIN']);
/** These errors tell that the plugin closed a kept connection just when it was used again. */
const STALE = new Set(['ECONNRESET', 'EPIPE']);

export class PluginClient {
  readonly #address: PluginAddress;
  readonly #limits: PluginLimits;
  #agent: Agent | undefined;

  constructor(address: PluginAddress, limits: PluginLimits = PLUGIN_LIMITS) {
    this.#address = address;
    this.#limits = limits;
  }

  /**
   * Calls a method such as `AuthZPlugin.AuthZReq` and returns the decoded answer.
   * @throws EngineError unavailable when the plugin cannot be reached or the connection breaks, deadline when it does
   * not answer in time, internal when it answers with a failure or with something that is not JSON.
   */
  async call(method: string, argument?: unknown, { callMs, retryMs }: PluginLimits = this.#limits): Promise<unknown> {
    const body = argument === undefined ? '' : JSON.stringify(argument);
    const end = Date.now() + retryMs;
    for (let pauseMs = FIRST_PAUSE_MS; ; pauseMs *= 2) {
      try {
        return await this.#callOnce(method, body, callMs);
      } catch (error) {
        const code = error instanceof EngineError ? String(error.details['errno']) : '';
        if (error instanceof EngineError && error.details['isStale'] === true) continue;
        if (!UNREACHABLE.has(code) || Date.now() + pauseMs > end) throw error;
      }
      await sleep(pauseMs);
    }
  }

  /**
   * Calls a method whose answer lasts. There is no time limit, because many plugins begin it only when they have
   * something to tell. Whoever stops taking pieces, or aborts, ends the connection, which no other call uses.
   * @throws EngineError as `call`, but nothing is tried again; a break later on is thrown while pieces are taken.
   */
  async stream(method: string, argument: unknown, signal: AbortSignal): Promise<AsyncIterable<Buffer>> {
    const body = JSON.stringify(argument);
    const agent = await makeAgent(this.#address);
    signal.throwIfAborted();
    const outgoing = this.#request(method, body, agent).once('close', () => agent.destroy());
    signal.addEventListener('abort', () => outgoing.destroy(), { once: true });
    const response = await responseTo(outgoing, method, body);
    if (response.statusCode === 200) return piecesOf(response, method);
    throw refusal(method, response.statusCode, await readAnswer(response, method));
  }

  /** Ends idle connections. Calls in flight are not touched. */
  close(): void {
    this.#agent?.destroy();
    this.#agent = undefined;
  }

  async #callOnce(method: string, body: string, callMs: number): Promise<unknown> {
    this.#agent ??= await makeAgent(this.#address);
    const outgoing = this.#request(method, body, this.#agent);
    try {
      return await within(method, callMs, answerTo(outgoing, method, body));
    } finally {
      // A connection that is still busy is of no use to later calls; a free one no longer belongs to the request.
      if (!outgoing.writableFinished || outgoing.res?.complete !== true) outgoing.destroy();
    }
  }

  #request(method: string, body: string, agent: Agent): ClientRequest & { res?: IncomingMessage } {
    const headers = {
      Accept: MEDIA_TYPE,
      Host: HOST,
      'Content-Type': 'application/json',
      'Content-Length': Buffer.byteLength(body),
    };
    const common = { method: 'POST', path: `/${method}`, headers, agent };
    const address = this.#address;
    if (address.kind === 'unix') return httpRequest({ ...common, socketPath: address.path });
    const target = { ...common, host: address.host, port: address.port };
    return address.kind === 'http'
      ? httpRequest(target)
      : httpsRequest({ ...target, servername: serverName(address.host) });
  }
}

async function within<T>(method: string, callMs: number, answer: Promise<T>): Promise<T> {
  let timer: NodeJS.Timeout | undefined;
  try {
    const timeUp = new Promise<never>((_resolve, reject) => {
      timer = setTimeout(
        () => reject(deadline(`${method}: no answer within ${callMs / 1000} seconds`, { code: 'PLUGIN' })),
        callMs,
      );
    });
    return await Promise.race([answer, timeUp]);
  } finally {
    clearTimeout(timer);
  }
}

async function answerTo(outgoing: ClientRequest, method: string, body: string): Promise<unknown> {
  const response = await responseTo(outgoing, method, body);
  const text = await readAnswer(response, method);
  if (response.statusCode !== 200) throw refusal(method, response.statusCode, text);
  try {
    return JSON.parse(text) as unknown;
  } catch (cause) {
    throw internal(`${method}: the answer is not JSON`, { code: 'PLUGIN', cause });
  }
}

/** Sends the request. Resolves when the answer begins, and rejects when the connection breaks. */
function responseTo(outgoing: ClientRequest, method: string, body: string): Promise<IncomingMessage> {
  return new Promise((resolve, reject) => {
    outgoing.once('response', resolve);
    outgoing.on('error', (error) => reject(broken(method, error, outgoing.reusedSocket)));
    outgoing.end(body);
  });
}

function refusal(method: string, status: number | undefined, text: string): EngineError {
  return internal(`${method}: ${failureText(text) ?? `status ${status}`}`, { code: PLUGIN_REFUSED });
}

async function* piecesOf(response: IncomingMessage, method: string): AsyncGenerator<Buffer> {
  try {
    yield* response as AsyncIterable<Buffer>;
  } catch (error) {
    throw broken(method, error);
  } finally {
    response.destroy();
  }
}

async function readAnswer(response: IncomingMessage, method: string): Promise<string> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > MAX_ANSWER_BYTES)
        throw internal(`${method}: the answer is larger than ${MAX_ANSWER_BYTES} bytes`, { code: 'PLUGIN' });
      chunks.push(chunk);
    }
  } catch (error) {
    throw error instanceof EngineError ? error : broken(method, error);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** Returns what a plugin says about its failure: `{"Err": "..."}`, else plain text. */
function failureText(text: string): string | undefined {
  try {
    const failure = memberOf(JSON.parse(text), 'err');
    if (typeof failure === 'string' && failure !== '') return failure;
  } catch {
    // The text is plain, as Go's http.Error writes it.
  }
  return text.trim() === '' ? undefined : text.trim().slice(0, 1000);
}

function broken(method: string, error: unknown, wasReused = false): EngineError {
  const errno = error instanceof Error && 'code' in error ? String(error.code) : '';
  return unavailable(`${method}: ${messageOf(error)}`, {
    code: 'PLUGIN',
    cause: error,
    details: { errno, isStale: wasReused && STALE.has(errno) },
  });
}

/** Connects to the socket at a path, and to nothing that a link there leads to. */
class PinnedAgent extends Agent {
  constructor(private readonly path: string) {
    super({ keepAlive: true });
  }

  override createConnection(): Duplex {
    return connectPinned(this.path);
  }
}

async function makeAgent(address: PluginAddress): Promise<Agent> {
  if (address.kind === 'unix' && address.isPinned === true) return new PinnedAgent(address.path);
  if (address.kind !== 'https') return new Agent({ keepAlive: true });
  const { insecureSkipVerify, caFile, certFile, keyFile } = address.tls;
  const read = async (path: string): Promise<Buffer | undefined> => (path === '' ? undefined : readFile(path));
  const [ca, cert, key] = await Promise.all([read(caFile), read(certFile), read(keyFile)]);
  return new HttpsAgent({
    keepAlive: true,
    rejectUnauthorized: !insecureSkipVerify,
    ...(ca === undefined ? {} : { ca }),
    ...(cert === undefined ? {} : { cert }),
    ...(key === undefined ? {} : { key }),
  });
}

/**
 * Returns a member of a JSON object by its name in lower case, because plugins spell names in several ways, as Go's
 * decoder allows.
 */
export function memberOf(value: unknown, name: string): unknown {
  if (typeof value !== 'object' || value === null) return undefined;
  return Object.entries(value).findLast(([key]) => key.toLowerCase() === name)?.[1];
}

/** Returns the server name for TLS, which cannot be an address. */
function serverName(host: string): string {
  return /^[\d.]+$|:/.test(host) ? '' : host;
}
