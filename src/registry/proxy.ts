/** Decides which requests go through a proxy, and takes HTTPS requests through one. */
import { request as httpRequest } from 'node:http';
import { Agent as HttpsAgent, request as httpsRequest, type AgentOptions } from 'node:https';
import { BlockList, isIP, type Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { connect as tlsConnect, type ConnectionOptions } from 'node:tls';
import { getEnvironmentData, setEnvironmentData } from 'node:worker_threads';
import { internal } from '../errors/engine-error.js';
import { connectThroughSocks, isSocks } from './socks.js';
import { trustedRoots } from './trusted-roots.js';

export interface ProxySettings {
  /** URLs, which may lack the scheme; '' for none. */
  readonly httpProxy: string;
  readonly httpsProxy: string;
  /** Hosts, domains, addresses and networks, separated by commas, each with a port if wanted; `*` for all. */
  readonly noProxy: string;
}

const KEY = 'engined.proxies';
const LOCAL_NAMES = 'localhost,127.0.0.0/8,127.0.0.1,::1';
const CONNECT_TIMEOUT_MS = 30_000;
const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addAddress('::1', 'ipv6');

/** Sets the proxies of this process: its main thread, and worker threads that start afterwards. */
export function useProxies(settings: ProxySettings): void {
  setEnvironmentData(KEY, settings);
}

/** Returns the proxy for a request of this process; undefined when it goes straight to its server. */
export function proxyOf(url: URL): URL | undefined {
  const settings = getEnvironmentData(KEY) as unknown as ProxySettings | undefined;
  return settings && chooseProxy(url, settings);
}

/** Returns the variables by which other programs learn of the proxies of this process. */
export function proxyVariables(): Record<string, string> {
  const settings = getEnvironmentData(KEY) as unknown as ProxySettings | undefined;
  if (settings === undefined) return {};
  const { httpProxy, httpsProxy, noProxy } = settings;
  const pairs = [
    ['http_proxy', httpProxy],
    ['https_proxy', httpsProxy],
    ['no_proxy', noProxy === '' ? LOCAL_NAMES : `${noProxy},${LOCAL_NAMES}`],
  ] as const;
  return Object.fromEntries(pairs.flatMap(([name, value]) => (value === '' ? [] : [[name, value]])));
}

/** Does the same as `proxyOf` for given settings. This machine itself is always reached directly. */
export function chooseProxy(url: URL, { httpProxy, httpsProxy, noProxy }: ProxySettings): URL | undefined {
  const proxy = url.protocol === 'https:' ? httpsProxy : httpProxy;
  if (proxy === '') return undefined;
  const host = url.hostname.replace(/^\[(.*)\]$/, '$1').toLowerCase();
  if (host === 'localhost' || isIn(loopback, host)) return undefined;
  const port = url.port || (url.protocol === 'https:' ? '443' : '80');
  if (noProxy.split(',').some((entry) => excludes(entry.trim().toLowerCase(), host, port))) return undefined;
  return new URL(/^[a-z0-9]+:\/\//i.test(proxy) ? proxy : `http://${proxy}`);
}

function excludes(entry: string, host: string, port: string): boolean {
  if (entry === '' || entry === '*') return entry === '*';
  const [network = '', prefix] = entry.split('/');
  if (prefix !== undefined) {
    const family = isIP(network);
    // A text that is not a network excludes nothing, as in other programs that read the variable.
    if (family === 0 || !/^\d{1,3}$/.test(prefix) || Number(prefix) > (family === 6 ? 128 : 32)) return false;
    const list = new BlockList();
    list.addSubnet(network, Number(prefix), family === 6 ? 'ipv6' : 'ipv4');
    return isIn(list, host);
  }
  // An IPv6 address without brackets has no port.
  const [, name = '', wanted] =
    /^(\[[^\]]*\]|[^:]*)(?::(\d+))?$/.exec(entry) ?? (entry.split(':', 3).length === 3 ? [entry, entry] : []);
  if (wanted !== undefined && wanted !== port) return false;
  const bare = name.replace(/^\[(.*)\]$/, '$1').replace(/^\*\./, '.');
  return bare.startsWith('.') ? host.endsWith(bare) : host === bare || host.endsWith(`.${bare}`);
}

function isIn(list: BlockList, host: string): boolean {
  const family = isIP(host);
  return family !== 0 && list.check(host, family === 6 ? 'ipv6' : 'ipv4');
}

/** Returns the header that logs in at the proxy, if its URL has a user. */
export function proxyHeaders({ username, password }: URL): Record<string, string> {
  if (username === '' && password === '') return {};
  const user = `${decodeURIComponent(username)}:${decodeURIComponent(password)}`;
  return { 'proxy-authorization': `Basic ${Buffer.from(user).toString('base64')}` };
}

/**
 * Returns the name that the proxy's certificate must have. Without it, the host in the request's headers would be
 * checked.
 */
export function proxyServername({ hostname }: URL): string {
  return isIP(hostname.replace(/^\[(.*)\]$/, '$1')) === 0 ? hostname : '';
}

/** An agent whose TLS connections go through a tunnel of the proxy. */
export class TunnelAgent extends HttpsAgent {
  constructor(
    private readonly proxy: URL,
    options: AgentOptions,
  ) {
    super(options);
  }

  override createConnection(
    options: ConnectionOptions,
    done: (error: Error | null, socket: Duplex) => void,
  ): undefined {
    const target = `${isIP(options.host ?? '') === 6 ? `[${options.host}]` : options.host}:${options.port ?? 443}`;
    const fail = (error: Error): void => done(error, undefined as never);
    const secure = (socket: Socket): void =>
      done(
        null,
        tlsConnect({
          ...options,
          socket,
          servername: options.servername ?? (isIP(options.host ?? '') === 0 ? (options.host ?? '') : ''),
        }),
      );
    if (isSocks(this.proxy)) {
      connectThroughSocks(this.proxy, options.host ?? '', options.port ?? 443).then(secure, fail);
      return undefined;
    }
    const ask = this.proxy.protocol === 'https:' ? httpsRequest : httpRequest;
    const tunnel = ask({
      host: this.proxy.hostname.replace(/^\[(.*)\]$/, '$1'),
      port: this.proxy.port || undefined,
      method: 'CONNECT',
      path: target,
      headers: { host: target, ...proxyHeaders(this.proxy) },
      agent: false,
      timeout: CONNECT_TIMEOUT_MS,
      ...(this.proxy.protocol === 'https:'
        ? { ca: [...trustedRoots().certificates], servername: proxyServername(this.proxy) }
        : {}),
    });
    tunnel.once('timeout', () =>
      tunnel.destroy(
        internal(`proxy ${this.proxy.host}: timeout while connecting`, {
          code: 'REGISTRY_TIMEOUT',
          details: { retryable: true },
        }),
      ),
    );
    tunnel.once('error', fail);
    tunnel.once('connect', ({ statusCode = 0 }, socket: Socket) => {
      if (statusCode === 200) {
        socket.setTimeout(0);
        secure(socket);
      } else {
        socket.destroy();
        fail(
          internal(`proxy ${this.proxy.host} refused the connection to ${target} with status ${statusCode}`, {
            code: 'PROXY_REFUSED',
            details: { retryable: statusCode >= 500 },
          }),
        );
      }
    });
    tunnel.end();
    return undefined;
  }
}
