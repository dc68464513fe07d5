/**
 * Keeps web pages away from listeners that do not ask for a certificate. Otherwise a stranger's page could make a
 * browser on the same machine or in the same network send requests to them.
 */
import { isIP } from 'node:net';
import { hostname } from 'node:os';
import type { Peer } from './peer.js';

export interface BrowserGuardOptions {
  /** Names besides `localhost` and the machine's own under which the listener is known. */
  readonly names: readonly string[];
  /** The operator's opt-out, asked at each request. */
  readonly allowsBrowsers: () => boolean;
}

/** The guard looks at these parts of a request. */
export interface GuardedRequest {
  /** Returns the value of a header, '' when absent. */
  getHeader(lowerCaseName: string): string;
}

export class BrowserGuard {
  readonly #names: ReadonlySet<string>;
  readonly #allowsBrowsers: () => boolean;
  /** The Host header that was known last: nearly all requests say the same. */
  #knownHost = '';

  constructor({ names, allowsBrowsers }: BrowserGuardOptions) {
    this.#names = new Set(['localhost', hostname().toLowerCase(), ...names.map((name) => name.toLowerCase())]);
    this.#allowsBrowsers = allowsBrowsers;
  }

  /** Returns why the request is refused; undefined when it is not. @param peer is called only when it matters. */
  objection(request: GuardedRequest, peer: () => Peer): string | undefined {
    const origin = request.getHeader('origin');
    const site = request.getHeader('sec-fetch-site');
    const host = request.getHeader('host');
    const isPage = origin !== '' || (site !== '' && site !== 'none');
    // A stranger's name that is resolved anew to a loopback address makes the page of the stranger look like one of
    // ours; the Host header still has the name.
    // Browsers always name a host. Clients that build name none when they open a connection of theirs.
    const isRebound = host !== '' && !this.#knows(host) && isLoopback(peer());
    if ((!isPage && !isRebound) || this.#allowsBrowsers()) return undefined;
    const what = isPage
      ? `a web page sent it (${origin === '' ? `Sec-Fetch-Site: ${site}` : `Origin: ${origin}`})`
      : `this daemon is not known as ${JSON.stringify(host)}`;
    return `request refused: ${what}; the feature allow-browsers lets it through`;
  }

  #knows(host: string): boolean {
    if (host === this.#knownHost) return host !== '';
    const name = host
      .replace(/:\d*$/, '')
      .replace(/^\[(.*)\]$/, '$1')
      .toLowerCase();
    if (isIP(name) === 0 && !this.#names.has(name)) return false;
    // The text may be a part of a whole head, which it would keep, and with which V8 compares more slowly.
    this.#knownHost = Buffer.from(host).toString();
    return true;
  }
}

function isLoopback(peer: Peer): boolean {
  return peer.kind !== 'unix' && /^(127\.|\[::1\])/.test(peer.address);
}
