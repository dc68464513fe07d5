/**
 * Sends HTTP requests to registries, with keep-alive agents, limits on connecting, answering and silence, and redirects
 * that never carry credentials to another origin. The main thread uses it for small documents, the workers for layers.
 */
import { Agent as HttpAgent, request as httpRequest, type ClientRequest, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest } from 'node:https';
import { createSecureContext, type SecureContext } from 'node:tls';
import { cancelled } from '../errors/engine-error.js';
import { factsOf, timedOut, tooManyRedirects, transportError } from './failure.js';
import { proxyHeaders, proxyOf, proxyServername, TunnelAgent } from './proxy.js';
import { isSocks, SocksAgent } from './socks.js';
import { trustedRoots } from './trusted-roots.js';

/** How the TLS of a registry is verified. Plain data, so that it can be sent to a worker. */
export interface TlsSettings {
  /** PEM certificates trusted besides those of the machine. */
  readonly ca?: string;
  readonly cert?: string;
  readonly key?: string;
  /** False only for registries that were declared insecure. */
  readonly verify: boolean;
}

export interface HttpLimits {
  /** Time for the TCP and TLS handshakes. */
  readonly connectMs: number;
  /** Time from the request to the head of the response. */
  readonly responseMs: number;
  /** Longest silence inside a body. */
  readonly idleMs: number;
}

export const DEFAULT_LIMITS: HttpLimits = { connectMs: 30_000, responseMs: 60_000, idleMs: 60_000 };

/** How long a request may take, and who ends it early. */
export interface RequestOptions {
  readonly limits: HttpLimits;
  readonly signal?: AbortSignal;
}

export interface HttpRequest {
  readonly method: 'GET' | 'HEAD' | 'POST' | 'PUT' | 'PATCH' | 'DELETE';
  readonly url: string;
  readonly headers?: Readonly<Record<string, string>>;
  /**
   * An iterable is sent as it comes, in chunks unless the headers have its length. Its `return` is called in any case.
   */
  readonly body?: string | Buffer | AsyncIterable<Buffer>;
  readonly tls: TlsSettings;
  readonly limits: HttpLimits;
  readonly signal?: AbortSignal | undefined;
  /** False when a redirect is an answer like others. */
  readonly isRedirected?: boolean;
}

const REDIRECTS = new Set([301, 302, 303, 307, 308]);
const MAX_REDIRECTS = 10;
const MAX_DISCARDED_BYTES = 64 << 10;
const IDLE_SOCKET_MS = 15_000;

const httpAgent = new HttpAgent({ keepAlive: true, maxFreeSockets: 8, timeout: IDLE_SOCKET_MS });
const httpsAgents = new Map<string, HttpsAgent>();
const socksAgents = new Map<string, SocksAgent>();
/** The agents trust the certificates of this version. */
let rootsVersion = '';

/**
 * Returns the agent of a TLS setting and a proxy. Each has one, because Node's agent does not tell connections apart by
 * their secure context.
 */
function agentFor(tls: TlsSettings, proxy: URL | undefined): HttpsAgent {
  const roots = trustedRoots();
  if (roots.version !== rootsVersion) {
    // Connections that are in use go on; idle connections of the old agents end soon.
    httpsAgents.clear();
    rootsVersion = roots.version;
  }
  const key = JSON.stringify([tls.ca, tls.cert, tls.key, tls.verify, proxy]);
  let agent = httpsAgents.get(key);
  if (!agent) {
    const secureContext: SecureContext = createSecureContext({
      ca: [...roots.certificates, ...(tls.ca === undefined ? [] : [tls.ca])],
      ...(tls.cert === undefined ? {} : { cert: tls.cert }),
      ...(tls.key === undefined ? {} : { key: tls.key }),
    });
    const options = {
      keepAlive: true,
      maxFreeSockets: 8,
      timeout: IDLE_SOCKET_MS,
      secureContext,
      rejectUnauthorized: tls.verify,
    };
    agent = proxy ? new TunnelAgent(proxy, options) : new HttpsAgent(options);
    httpsAgents.set(key, agent);
  }
  return agent;
}

/**
 * Sends a request and resolves with the head of the response; the caller reads or destroys its body. GET and HEAD
 * follow redirects. Any status resolves. Rejects with `cancelled` when the signal aborts, else with the EngineErrors of
 * failure.ts for networks that refuse, break or stay silent.
 */
export async function sendRequest(request: HttpRequest): Promise<IncomingMessage> {
  let current = request;
  for (let hop = 0; ; hop++) {
    const response = await sendFresh(current);
    const location = response.headers.location;
    const redirects = request.isRedirected !== false && REDIRECTS.has(response.statusCode ?? 0);
    if (!redirects || location === undefined || (request.method !== 'GET' && request.method !== 'HEAD'))
      return response;
    discard(response);
    current = redirected(current, location);
    if (hop === MAX_REDIRECTS) throw tooManyRedirects(current, location, MAX_REDIRECTS);
  }
}

/** Reads a short body to its end, so that the connection can be used again; a long one is not worth it. */
function discard(response: IncomingMessage): void {
  let bytes = 0;
  response.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    if (bytes > MAX_DISCARDED_BYTES) response.destroy();
  });
}

function redirected(request: HttpRequest, location: string): HttpRequest {
  const from = new URL(request.url);
  let to: URL;
  try {
    to = new URL(location, from);
  } catch (error) {
    throw transportError(request, error);
  }
  if (to.protocol !== 'https:' && to.protocol !== 'http:')
    throw transportError(request, new Error(`unsupported protocol scheme "${to.protocol}"`));
  return { ...request, url: to.href, ...identityFor(to, from, { headers: request.headers ?? {}, tls: request.tls }) };
}

/**
 * Returns the headers and certificate for a request to `to` out of those for `from`: another origin gets neither
 * credentials nor the client certificate.
 */
export function identityFor(
  to: URL,
  from: URL,
  { headers, tls }: Pick<Required<HttpRequest>, 'headers' | 'tls'>,
): Pick<Required<HttpRequest>, 'headers' | 'tls'> {
  if (to.origin === from.origin) return { headers, tls };
  const { ca, verify } = tls;
  return {
    headers: Object.fromEntries(Object.entries(headers).filter(([name]) => name.toLowerCase() !== 'authorization')),
    tls: { verify, ...(ca === undefined ? {} : { ca }) },
  };
}

/**
 * Sends a request, and once more if the connection breaks at once: a server may close an idle connection just when it
 * is used again.
 */
async function sendFresh(request: HttpRequest): Promise<IncomingMessage> {
  const used = { wasReused: false };
  try {
    return await sendOnce(request, used);
  } catch (error) {
    if (!used.wasReused || !factsOf(error).retryable || request.signal?.aborted || isStream(request.body)) throw error;
    return sendOnce(request, used);
  }
}

function sendOnce(request: HttpRequest, used: { wasReused: boolean }): Promise<IncomingMessage> {
  const { method, url, body, limits, signal } = request;
  const headers: Record<string, string> = {
    'user-agent': 'engined',
    'accept-encoding': 'identity',
    ...request.headers,
  };
  if (body !== undefined && !isStream(body)) headers['content-length'] = String(Buffer.byteLength(body));
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(cancelled('the request was cancelled'));
    const secure = url.startsWith('https:');
    const proxy = proxyOf(new URL(url));
    const outgoing = secure
      ? httpsRequest(url, { method, headers, agent: agentFor(request.tls, proxy) })
      : proxy
        ? plainThrough(proxy, url, method, headers)
        : httpRequest(url, { method, headers, agent: httpAgent });

    let timer: NodeJS.Timeout | undefined;
    const arm = (phase: string, ms: number): void => {
      clearTimeout(timer);
      timer = setTimeout(() => outgoing.destroy(timedOut(request, phase)), ms);
    };
    const onAbort = (): void => void outgoing.destroy(cancelled('the request was cancelled'));
    const settle = (): void => clearTimeout(timer);
    signal?.addEventListener('abort', onAbort, { once: true });
    outgoing.once('close', () => {
      settle();
      signal?.removeEventListener('abort', onAbort);
    });
    outgoing.once('error', (error) => {
      settle();
      used.wasReused = outgoing.reusedSocket;
      reject(transportError(request, error));
    });
    arm('connecting', limits.connectMs);
    outgoing.once('socket', (socket) => {
      const awaitHead = (): void => (isStream(body) ? undefined : arm('awaiting the response', limits.responseMs));
      if (outgoing.reusedSocket || (!socket.connecting && !secure)) awaitHead();
      else socket.once(secure ? 'secureConnect' : 'connect', awaitHead);
    });
    outgoing.once('response', (response) => {
      settle();
      // The agent sets its own idle time again when the socket comes back to it.
      const { socket } = response;
      const onSilence = (): void => void response.destroy(timedOut(request, 'reading the body'));
      socket.setTimeout(limits.idleMs);
      socket.on('timeout', onSilence);
      response.once('close', () => socket.off('timeout', onSilence));
      resolve(response);
    });
    if (!isStream(body)) outgoing.end(body);
    else {
      const sending = {
        progress: () => arm('sending the body', limits.idleMs),
        done: () => arm('awaiting the response', limits.responseMs),
      };
      sendStream(outgoing, body, sending).catch((error: unknown) => outgoing.destroy(transportError(request, error)));
    }
  });
}

function isStream(body: HttpRequest['body']): body is AsyncIterable<Buffer> {
  return typeof body === 'object' && !Buffer.isBuffer(body);
}

/**
 * Sends a body at the server's speed. It ends early, without an error, when the server answers before it has
 * everything.
 */
async function sendStream(
  outgoing: ClientRequest,
  body: AsyncIterable<Buffer>,
  on: { readonly progress: () => void; readonly done: () => void },
): Promise<void> {
  let isAnswered = false;
  outgoing.once('response', () => (isAnswered = true));
  for await (const chunk of body) {
    if (isAnswered || outgoing.destroyed) return;
    on.progress();
    if (!outgoing.write(chunk)) await drained(outgoing);
  }
  if (isAnswered || outgoing.destroyed) return;
  on.done();
  outgoing.end();
}

/** Resolves when the request drains, or can drain no more. */
function drained(outgoing: ClientRequest): Promise<void> {
  return new Promise((resolve) => {
    const events = ['drain', 'close', 'response'];
    const settle = (): void => {
      for (const event of events) outgoing.off(event, settle);
      resolve();
    };
    for (const event of events) outgoing.once(event, settle);
  });
}

function socksAgentFor(proxy: URL): SocksAgent {
  let agent = socksAgents.get(proxy.href);
  if (!agent)
    socksAgents.set(
      proxy.href,
      (agent = new SocksAgent(proxy, { keepAlive: true, maxFreeSockets: 8, timeout: IDLE_SOCKET_MS })),
    );
  return agent;
}

/** Sends a plain request to the proxy, with the whole URL as its path. */
function plainThrough(proxy: URL, url: string, method: string, headers: Record<string, string>): ClientRequest {
  if (isSocks(proxy)) return httpRequest(url, { method, headers, agent: socksAgentFor(proxy) });
  const all = { ...headers, host: new URL(url).host, ...proxyHeaders(proxy) };
  return proxy.protocol === 'https:'
    ? httpsRequest(proxy, {
        method,
        path: url,
        headers: all,
        agent: agentFor({ verify: true }, undefined),
        servername: proxyServername(proxy),
      })
    : httpRequest(proxy, { method, path: url, headers: all, agent: httpAgent });
}

/** Reads a whole small body. Throws `data-loss` when it is longer than `maxBytes` or breaks off. */
export async function readBody(request: HttpRequest, response: IncomingMessage, maxBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = [];
  let size = 0;
  try {
    for await (const chunk of response as AsyncIterable<Buffer>) {
      size += chunk.length;
      if (size > maxBytes) throw new Error(`the response is longer than ${maxBytes} bytes`);
      chunks.push(chunk);
    }
  } catch (error) {
    throw transportError(request, error);
  }
  return Buffer.concat(chunks, size);
}
