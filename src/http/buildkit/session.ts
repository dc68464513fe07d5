/** Sessions: connections on which a client offers its files, secrets and the like to a build. */
import type { Duplex } from 'node:stream';
import { EngineError, isEngineError } from '../../errors/engine-error.js';
import { GrpcClient } from './grpc-client.js';
import { HealthCheckRequestSchema, HealthCheckResponseSchema } from './proto/gen/session_pb.js';

const HEALTH_INTERVAL_MS = 5_000;
const HEALTH_TIMEOUT_MS = 30_000;
/** BuildKit waits this long for a session that is not there yet. */
const PATIENCE_MS = 5_000;
/** More connections at once are somebody's mistake. */
const MAX_SESSIONS = 1_000;

export interface SessionHead {
  readonly id: string;
  /** Sessions with the same key send the same directories. */
  readonly sharedKey: string;
}

export class Session {
  readonly id: string;
  readonly sharedKey: string;
  readonly client: GrpcClient;
  readonly #timer: NodeJS.Timeout;
  #failures = 0;
  #isChecking = false;

  constructor({ id, sharedKey }: SessionHead, connection: Duplex) {
    this.id = id;
    this.sharedKey = sharedKey;
    this.client = new GrpcClient(connection);
    this.#timer = setInterval(() => void this.#check(), HEALTH_INTERVAL_MS).unref();
    void this.client.closed.then(() => clearInterval(this.#timer));
  }

  close(): void {
    this.client.close();
  }

  /** A client that cannot answer any more is given up; one that has no health service is not. */
  async #check(): Promise<void> {
    if (this.#isChecking) return;
    this.#isChecking = true;
    try {
      const input = [HealthCheckRequestSchema, {}] as const;
      const options = { timeoutMs: HEALTH_TIMEOUT_MS };
      await this.client.unary('/grpc.health.v1.Health/Check', input, HealthCheckResponseSchema, options);
      this.#failures = 0;
    } catch (error) {
      if (isEngineError(error, 'not-implemented')) return clearInterval(this.#timer);
      if (++this.#failures === 2) this.close();
    } finally {
      this.#isChecking = false;
    }
  }
}

export class Sessions {
  readonly #sessions = new Map<string, Session>();
  readonly #waiting = new Map<string, Set<(session: Session) => void>>();

  /** @throws EngineError invalid for a session that is there already, or has no name. */
  requireFree(id: string): void {
    if (id === '') throw new EngineError('invalid', 'no session id');
    if (this.#sessions.has(id)) throw new EngineError('invalid', `session ${id} already exists`);
    if (this.#sessions.size >= MAX_SESSIONS) throw new EngineError('unavailable', 'there are too many sessions');
  }

  /** Serves a session until its connection ends. @throws as `requireFree`. */
  add(head: SessionHead, connection: Duplex): Session {
    this.requireFree(head.id);
    const session = new Session(head, connection);
    this.#sessions.set(head.id, session);
    void session.client.closed.then(() => {
      if (this.#sessions.get(head.id) === session) this.#sessions.delete(head.id);
    });
    for (const found of this.#waiting.get(head.id) ?? []) found(session);
    this.#waiting.delete(head.id);
    return session;
  }

  get(id: string): Session | undefined {
    return this.#sessions.get(id);
  }

  /** Resolves with a session, which may come a moment later than the build. @throws EngineError not-found. */
  async wait(id: string, signal?: AbortSignal): Promise<Session> {
    const present = this.#sessions.get(id);
    if (present !== undefined) return present;
    const waiting = this.#waiting.get(id) ?? new Set();
    this.#waiting.set(id, waiting);
    return new Promise((resolve, reject) => {
      const stop = (error: EngineError): void => {
        leave();
        reject(error);
      };
      const aborted = (): void => stop(new EngineError('cancelled', 'context canceled'));
      const timer = setTimeout(() => stop(new EngineError('not-found', `no active sessions`)), PATIENCE_MS);
      const leave = (): void => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', aborted);
        waiting.delete(found);
        if (waiting.size === 0 && this.#waiting.get(id) === waiting) this.#waiting.delete(id);
      };
      const found = (session: Session): void => {
        leave();
        resolve(session);
      };
      waiting.add(found);
      signal?.addEventListener('abort', aborted, { once: true });
      if (signal?.aborted === true) aborted();
    });
  }

  closeAll(): void {
    for (const session of this.#sessions.values()) session.close();
  }
}
