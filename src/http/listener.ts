/** Listening sockets; every accepted connection goes to the pool that serves it. */
import { setImmediate as setImmediateAsync } from 'node:timers/promises';
import { EngineError, messageOf, type ErrorKind } from '../errors/engine-error.js';
import type { KeptSockets } from '../ports/kept-sockets.js';
import type { Logger } from '../ports/logger.js';
import type { FollowedTlsRules, TerminateTls } from '../ports/tls-terminator.js';
import { closeFd, watchReadable } from '../sys/files/fd.js';
import { highestForClients } from '../sys/process/limits.js';
import { acceptFrom, listeningOnTcp, listenOnTcp, prepareConnections } from '../sys/net/listen-socket.js';
import type { AccessPolicy } from './access-policy.js';
import type { BrowserGuard } from './browser-guard.js';
import { Closing, FIRST_REQUEST_MS, type CloseOptions } from './closing.js';
import type { ConnectionPool } from './connection-pool.js';
import { Gate, type LiveConnection, type RequestSummary } from './gate.js';
import { openSocketFile } from './socket-file.js';

export type ListenSpec =
  /** A stale socket file is replaced, and the file is removed at the close. Mode 0660, group `gid` or our own. */
  | { readonly kind: 'unix'; readonly path: string; readonly gid?: number }
  /** Port 0 means any free one, which `address` then tells. */
  | {
      readonly kind: 'tcp';
      readonly host: string;
      readonly port: number;
      readonly prefix?: string;
      readonly tls?: FollowedTlsRules;
      readonly guard?: BrowserGuard;
    }
  /** A socket that listens already and is given away. Its file, if it has one, belongs to whoever made it. */
  | {
      readonly kind: 'fd';
      readonly fd: number;
      readonly address: string;
      readonly tls?: FollowedTlsRules;
      readonly guard?: BrowserGuard;
    };

export interface Listener {
  /** `unix:///run/engine.sock` or `tcp://127.0.0.1:2375`, with the port that was bound. */
  readonly address: string;
  /** Port of a tcp listener. */
  readonly port: number | undefined;
  /** Returns the requests that have no complete reply now; hijacked connections are not among them. */
  inFlight(): readonly RequestSummary[];
  /**
   * Stops accepting, and ends idle connections. Resolves when the requests that are left have begun their replies or
   * wait for others than the daemon, or after twenty times the limit. Idempotent.
   */
  rest(limitMs: number): Promise<void>;
  /**
   * Does what `rest` does, cuts off replies without an end of their own, and after the limit others that are still in
   * flight. Requests that nobody has begun to answer are cut off after five times as long if they wait for others than
   * the daemon, and after twenty times as long otherwise. Hijacked connections are not touched: they belong to whoever
   * hijacked them. Idempotent.
   */
  close(limitMs: number, options?: CloseOptions): Promise<void>;
  /**
   * Waits until clients over TLS have been sent what was written to them, up to the limit, and cuts off all of them.
   * Call it after `close`, when hijacked connections have been ended, too.
   */
  end(limitMs: number): Promise<void>;
}

export interface ListenServices {
  readonly pool: ConnectionPool;
  readonly logger: Logger;
  readonly maxInFlight: number;
  readonly policy?: AccessPolicy | undefined;
  readonly keptSockets: KeptSockets;
  readonly terminateTls?: TerminateTls | undefined;
}

/** Connections that are accepted before others get their turn again. */
const ACCEPT_BATCH = 64;
/** So many such connections are passed on; each takes a place in the service manager's store. */
const MAX_PASSED = 256;
/** Pause of accepting when the system has no descriptors or memory left. */
const EXHAUSTED_MS = 100;

const KIND_BY_ERRNO: Readonly<Record<string, ErrorKind>> = {
  EADDRINUSE: 'conflict',
  EADDRNOTAVAIL: 'invalid',
  ENOTFOUND: 'invalid',
  ENOENT: 'invalid',
  ENOTDIR: 'invalid',
  EACCES: 'forbidden',
  EPERM: 'forbidden',
};

/** Starts to listen. @throws EngineError as `Front.listen` documents. */
export async function listen(spec: ListenSpec, services: ListenServices): Promise<Listener> {
  const gate = new Gate({
    limit: services.maxInFlight,
    policy: services.policy,
    prefix: spec.kind === 'tcp' ? (spec.prefix ?? '') : '',
    guard: spec.kind === 'unix' ? undefined : spec.guard,
  });
  const { pool, logger, keptSockets: kept } = services;
  const tls = spec.kind === 'unix' ? undefined : spec.tls;
  if (tls && !services.terminateTls) throw new Error('this front cannot end TLS');
  const { fd, address, port, release, keptName } = await bind(spec, kept);
  const terminator = tls && services.terminateTls?.(tls, (connection, peer) => pool.serve(connection, gate, peer));
  const acceptor = startAccepting(fd, logger, (connection) =>
    terminator ? terminator.accept(connection) : pool.serve(connection, gate),
  );
  for (const connection of takePassed(keptName, kept)) pool.serve(connection, gate);
  const closing = new Closing(gate);
  let stopped: Promise<void> | undefined;
  let closed: Promise<void> | undefined;
  const stop = async (): Promise<void> => {
    acceptor.close();
    closeFd(fd);
    // This may run in the middle of a connection's acceptance, or before its reply has left the HTTP library.
    await setImmediateAsync();
    await release();
    pool.parkIdle();
    passOn(gate, keptName, kept);
    gate.closing = true;
    await terminator?.idle(FIRST_REQUEST_MS);
    closing.endIdle();
  };
  const rest = async (limitMs: number): Promise<void> => {
    await (stopped ??= stop());
    await closing.workDone(limitMs);
  };
  const close = async (limitMs: number, options?: CloseOptions): Promise<void> => {
    await (stopped ??= stop());
    await closing.drain(limitMs, options);
    terminator?.close();
  };
  return {
    address,
    port,
    inFlight: () => [...gate.pending].map((exchange) => exchange.summary()),
    rest,
    close: (limitMs, options) => (closed ??= close(limitMs, options)),
    end: async (limitMs) => terminator?.end(limitMs),
  };
}

interface Bound {
  readonly fd: number;
  readonly address: string;
  readonly port?: number;
  /** Called after `fd` was closed. */
  readonly release: () => Promise<void>;
  /** The next process finds what is kept under this name. */
  readonly keptName: string;
}

/** Goes on with the socket of an earlier process, or makes one; the next process gets it, if somebody keeps it. */
async function bind(spec: ListenSpec, kept: KeptSockets): Promise<Bound> {
  const nothing = async (): Promise<void> => undefined;
  if (spec.kind === 'fd') {
    if (spec.address.startsWith('tcp:')) prepareConnections(spec.fd);
    return { fd: spec.fd, address: spec.address, release: nothing, keptName: `listener fd ${spec.address}` };
  }
  const name = spec.kind === 'unix' ? spec.path : `${hostText(spec.host)}:${spec.port}`;
  const keptName = `listener ${spec.kind} ${name}`;
  const earlier = kept.take(keptName);
  try {
    if (spec.kind === 'tcp') {
      const { fd, port } = earlier === undefined ? await listenOnTcp(spec.host, spec.port) : listeningOnTcp(earlier);
      kept.keep(keptName, fd);
      const address = `tcp://${hostText(spec.host)}:${port}${spec.prefix ?? ''}`;
      return { fd, address, port, release: nothing, keptName };
    }
    const { fd, isEarlier, remove } = await openSocketFile(spec.path, spec.gid, earlier);
    // The old socket is of no use when its file is gone.
    if (!isEarlier) kept.drop(keptName);
    kept.keep(keptName, fd);
    const release = async (): Promise<void> => (kept.outlives(keptName) ? undefined : remove());
    return { fd, address: `unix://${spec.path}`, release, keptName };
  } catch (cause) {
    if (cause instanceof EngineError && cause.kind !== 'internal') throw cause;
    const kind = KIND_BY_ERRNO[errnoOf(cause)] ?? 'internal';
    throw new EngineError(kind, `cannot listen on ${name}: ${messageOf(cause)}`, { code: 'LISTEN', cause });
  }
}

/**
 * Gives connections that wait for a request to the next process, where their clients may take their time. A client that
 * is between two requests would not repeat the next one either, if that met the end of its connection.
 */
function passOn(gate: Gate, keptName: string, kept: KeptSockets): void {
  const waiting = [...gate.connections].filter((connection) => connection.descriptor !== undefined);
  const isLater = (connection: LiveConnection): number => (gate.isFresh(connection) ? 0 : 1);
  waiting.sort((a, b) => isLater(a) - isLater(b));
  for (const [index, connection] of waiting.slice(0, MAX_PASSED).entries()) {
    if (!kept.pass(passedName(keptName, index), connection.descriptor ?? -1)) return;
    // This closes our copy only.
    connection.close();
  }
}

/** Returns the connections that the earlier process has passed on. */
function takePassed(keptName: string, kept: KeptSockets): number[] {
  const connections: number[] = [];
  for (;;) {
    const name = passedName(keptName, connections.length);
    const fd = kept.take(name);
    if (fd === undefined) return connections;
    // A copy that stayed in the store would keep the connection open for ever.
    kept.drop(name);
    connections.push(fd);
  }
}

function passedName(keptName: string, index: number): string {
  return `connection ${index} of ${keptName}`;
}

function startAccepting(fd: number, logger: Logger, serve: (connection: number) => void): { close(): void } {
  const highest = highestForClients();
  let pause: NodeJS.Timeout | undefined;
  let isFull = false;
  const closed = new AbortController();
  const rest = (): void => {
    watch.pause();
    pause = setTimeout(() => watch.resume(), EXHAUSTED_MS);
  };
  const watch = watchReadable(fd, () => {
    try {
      // A connection that is served may run what closes the listener; its descriptor is another's then.
      for (let i = 0; i < ACCEPT_BATCH && !closed.signal.aborted; i++) {
        const connection = acceptFrom(fd);
        if (connection === undefined) return;
        if (connection > highest) {
          closeFd(connection);
          if (!isFull) logger.warn({ connection }, 'connections are refused: nearly all file descriptors are in use');
          isFull = true;
          return rest();
        }
        isFull = false;
        serve(connection);
      }
    } catch (err) {
      // The socket stays readable: without a pause this would be a busy loop.
      logger.error({ err }, 'accepting connections failed');
      rest();
    }
  });
  return {
    close: () => {
      closed.abort();
      clearTimeout(pause);
      watch.close();
    },
  };
}

function errnoOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}

function hostText(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}
