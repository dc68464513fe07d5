/** Counts the requests in flight of one listener: the bound on them, and what its closing waits for. */

import { forbidden } from '../errors/engine-error.js';
import type { AccessPolicy } from './access-policy.js';
import type { BrowserGuard, GuardedRequest } from './browser-guard.js';
import type { Peer } from './peer.js';
import type { Resolution, RouteMatch, Router } from './router.js';

/**
 * A request that has no complete reply, for people who look into a running daemon: it shows nothing that a client
 * wrote.
 */
export interface RequestSummary {
  readonly id: string;
  readonly method: string;
  readonly route: string;
  /** `open` until its reply has begun. */
  readonly phase: string;
  readonly seconds: number;
}

export interface PendingExchange {
  abort(): void;
  /** True while its reply depends on somebody besides the daemon, if only on a client that has not sent all of it. */
  readonly waitsForOthers: boolean;
  /** True when its reply has begun and follows something, without an end of its own. */
  readonly isEndless: boolean;
  /** True when that is a container, at whose end the reply ends. */
  readonly followsContainer: boolean;
  summary(): RequestSummary;
}

export interface LiveConnection {
  /** True between requests. */
  readonly idle: boolean;
  close(): void;
  /** Its descriptor, if another process could go on with it: nothing of a next request was read. */
  readonly descriptor?: number;
}

export interface GateOptions {
  /** Requests in flight before further ones are refused. */
  readonly limit: number;
  /** Decides which requests are served here; absent: all are. */
  readonly policy?: AccessPolicy | undefined;
  /** Text before every path, such as `/engine`; '' for nothing. */
  readonly prefix?: string;
  readonly guard?: BrowserGuard | undefined;
}

const ELSEWHERE: Resolution = { kind: 'not-found' };

export class Gate {
  /** Exchanges that had no complete reply when their handler returned. */
  readonly pending = new Set<PendingExchange>();
  readonly connections = new Set<LiveConnection>();
  /** Those of `connections` whose request is on its way, as they are new or it has arrived: a close waits for it. */
  readonly #fresh = new Set<LiveConnection>();
  /** True when the listener is closing: connections end with their reply. */
  closing = false;
  #inFlight = 0;
  #onIdle: (() => void) | undefined;
  readonly #limit: number;
  readonly #policy: AccessPolicy | undefined;
  readonly #prefix: string;
  readonly #guard: BrowserGuard | undefined;

  constructor({ limit, policy, prefix = '', guard }: GateOptions) {
    this.#limit = limit;
    this.#policy = policy;
    this.#prefix = prefix;
    this.#guard = guard;
  }

  /** Does the same as `Router.resolve`, for the path as the client sent it. */
  resolve(router: Router, method: string, path: string): Resolution {
    if (this.#prefix === '') return router.resolve(method, path);
    if (!path.startsWith(`${this.#prefix}/`)) return ELSEWHERE;
    const found = router.resolve(method, path.slice(this.#prefix.length));
    return found.kind === 'redirect' ? { ...found, path: this.#prefix + found.path } : found;
  }

  /** Returns why a request is refused whatever it asks for; undefined when it is not. */
  objection(request: GuardedRequest, peer: () => Peer): string | undefined {
    return this.#guard?.objection(request, peer);
  }

  /** Checks that requests for the route are served here. @throws EngineError forbidden when they are not. */
  requireAllowed(method: string, match: RouteMatch): void {
    if (this.#policy === undefined || this.#policy(method, match)) return;
    throw forbidden(`${method} ${match.path} is not allowed on this socket`, { code: 'SCOPE' });
  }

  get full(): boolean {
    return this.#inFlight >= this.#limit;
  }

  enter(): void {
    this.#inFlight++;
  }

  leave(exchange: PendingExchange): void {
    this.#inFlight--;
    // Nearly always there are none, and these lines run for each request.
    if (this.pending.size > 0) this.pending.delete(exchange);
    this.#settle();
  }

  isFresh(connection: LiveConnection): boolean {
    return this.#fresh.has(connection);
  }

  /** A request of the connection is to come at once. */
  expect(connection: LiveConnection): void {
    this.#fresh.add(connection);
  }

  /** The request is being served, or will not come. */
  expectNoMore(connection: LiveConnection): void {
    if (this.#fresh.size > 0 && this.#fresh.delete(connection)) this.#settle();
  }

  /** Resolves when nothing is in flight and no request is awaited. */
  idle(): Promise<void> {
    if (this.#isIdle) return Promise.resolve();
    return new Promise((resolve) => {
      this.#onIdle = resolve;
    });
  }

  get #isIdle(): boolean {
    return this.#inFlight === 0 && this.#fresh.size === 0;
  }

  #settle(): void {
    if (this.#isIdle) this.#onIdle?.();
  }
}
