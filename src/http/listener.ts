/** Listening sockets; every accepted connection goes to the pool that serves it. */
import { chmod, chown, lstat, unlink } from 'node:fs/promises';
import { connect } from 'node:net';
import { setImmediate as setImmediateAsync, setTimeout as setTimeoutAsync } from 'node:timers/promises';
import { EngineError, conflict, invalid, messageOf, type ErrorKind } from '../errors/engine-error.js';
import type { Logger } from '../ports/logger.js';
import { closeFd, watchReadable } from '../sys/fd.js';
import { MAX_UNIX_PATH_BYTES, acceptFrom, listenOnTcp, listenOnUnix } from '../sys/listen-socket.js';
import type { AccessPolicy } from './access-policy.js';
import type { ConnectionPool } from './connection-pool.js';
import { Gate } from './gate.js';
import type { TlsIdentity } from './tls/identity.js';
import { createTlsTerminator } from './tls/terminator.js';

export type ListenSpec =
  /** A stale socket file is replaced, and the file is removed at the close. Mode 0660, group `gid` or our own. */
  | { readonly kind: 'unix'; readonly path: string; readonly gid?: number }
  /** Port 0: any free one, which `address` then tells. */
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number; readonly tls?: TlsIdentity };

export interface Listener {
  /** `unix:///run/engine.sock` or `tcp://127.0.0.1:2375`, with the port that was bound. */
  readonly address: string;
  /** Port of a tcp listener. */
  readonly port: number | undefined;
  /**
   * Stops accepting, ends idle connections, and cuts off after the limit what is still in flight. Hijacked
   * connections are not touched: they belong to whoever hijacked them. Idempotent.
   */
  close(limitMs: number): Promise<void>;
}

export interface ListenServices {
  readonly pool: ConnectionPool;
  readonly logger: Logger;
  readonly maxInFlight: number;
  readonly policy?: AccessPolicy | undefined;
}

const SOCKET_MODE = 0o660;
/** Until its group is set a socket file is for its owner only. */
const INITIAL_MODE = 0o600;
/** Time for a probed socket to answer a connect; a full backlog counts as alive. */
const PROBE_MS = 1_000;
/** Connections that are accepted before others get their turn again. */
const ACCEPT_BATCH = 64;
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

/** @throws EngineError as `Front.listen` documents. */
export async function listen(spec: ListenSpec, services: ListenServices): Promise<Listener> {
  const gate = new Gate({ limit: services.maxInFlight, policy: services.policy });
  const { fd, port } = await bind(spec);
  const { pool, logger } = services;
  const identity = spec.kind === 'tcp' ? spec.tls : undefined;
  const terminator = identity && createTlsTerminator(identity, logger, (connection, peer) => pool.serve(connection, gate, peer));
  const acceptor = startAccepting(fd, logger, (connection) => (terminator ? terminator.accept(connection) : pool.serve(connection, gate)));
  let closed: Promise<void> | undefined;
  const close = async (limitMs: number): Promise<void> => {
    acceptor.close();
    terminator?.close();
    closeFd(fd);
    if (spec.kind === 'unix') await unlink(spec.path);
    await drain(gate, limitMs);
  };
  return {
    address: spec.kind === 'unix' ? `unix://${spec.path}` : `tcp://${hostText(spec.host)}:${port}`,
    port,
    close: (limitMs) => (closed ??= close(limitMs)),
  };
}

async function bind(spec: ListenSpec): Promise<{ readonly fd: number; readonly port: number | undefined }> {
  const name = spec.kind === 'unix' ? spec.path : `${hostText(spec.host)}:${spec.port}`;
  try {
    if (spec.kind === 'tcp') return await listenOnTcp(spec.host, spec.port);
    return { fd: await bindUnix(spec.path, spec.gid), port: undefined };
  } catch (cause) {
    if (cause instanceof EngineError && cause.kind !== 'internal') throw cause;
    const kind = KIND_BY_ERRNO[errnoOf(cause)] ?? 'internal';
    throw new EngineError(kind, `cannot listen on ${name}: ${messageOf(cause)}`, { code: 'LISTEN', cause });
  }
}

async function bindUnix(path: string, gid: number | undefined): Promise<number> {
  if (Buffer.byteLength(path) > MAX_UNIX_PATH_BYTES) {
    throw invalid(`cannot listen on ${path}: it is longer than ${MAX_UNIX_PATH_BYTES} bytes`, { code: 'LISTEN' });
  }
  await removeStaleSocket(path);
  const fd = listenOnUnix(path, INITIAL_MODE);
  try {
    if (gid !== undefined) await chown(path, -1, gid);
    await chmod(path, SOCKET_MODE);
  } catch (error) {
    closeFd(fd);
    await unlink(path);
    throw error;
  }
  return fd;
}

function startAccepting(fd: number, logger: Logger, serve: (connection: number) => void): { close(): void } {
  let pause: NodeJS.Timeout | undefined;
  const watch = watchReadable(fd, () => {
    try {
      for (let i = 0; i < ACCEPT_BATCH; i++) {
        const connection = acceptFrom(fd);
        if (connection === undefined) return;
        serve(connection);
      }
    } catch (err) {
      // The socket stays readable: without a pause this would be a busy loop.
      logger.error({ err }, 'accepting connections failed');
      watch.pause();
      pause = setTimeout(() => watch.resume(), EXHAUSTED_MS);
    }
  });
  return {
    close: () => {
      clearTimeout(pause);
      watch.close();
    },
  };
}

/** Ends idle connections at once, the others with their reply, and all of them after the limit. */
async function drain(gate: Gate, limitMs: number): Promise<void> {
  gate.closing = true;
  for (const connection of gate.connections) {
    if (connection.idle) connection.close();
  }
  const limit = new AbortController();
  const timeUp = setTimeoutAsync(limitMs, undefined, { signal: limit.signal });
  await Promise.race([gate.idle(), timeUp]);
  limit.abort();
  await timeUp.catch(() => undefined);
  for (const exchange of gate.pending) exchange.abort();
  // The last replies leave the HTTP library's buffer when its turn of the event loop ends.
  await setImmediateAsync();
  for (const connection of gate.connections) connection.close();
}

function errnoOf(error: unknown): string {
  return error instanceof Error && 'code' in error ? String(error.code) : '';
}

/** @throws EngineError conflict when somebody answers there, or when it is no socket. */
async function removeStaleSocket(path: string): Promise<void> {
  const present = await lstat(path).catch((error: NodeJS.ErrnoException) => {
    // Anything but its absence shows again, better told, when the path is bound.
    void error;
    return undefined;
  });
  if (present === undefined) return;
  if (!present.isSocket()) throw conflict(`cannot listen on ${path}: it exists and is not a socket`, { code: 'LISTEN' });
  if (await isAnswered(path)) {
    throw conflict(`cannot listen on ${path}: another process is listening there`, { code: 'LISTEN' });
  }
  await unlink(path);
}

function isAnswered(path: string): Promise<boolean> {
  return new Promise((resolve) => {
    const probe = connect(path);
    const done = (answered: boolean): void => {
      probe.destroy();
      resolve(answered);
    };
    probe.setTimeout(PROBE_MS, () => done(true));
    probe.once('connect', () => done(true));
    probe.once('error', (error: NodeJS.ErrnoException) => done(error.code !== 'ECONNREFUSED' && error.code !== 'ENOENT'));
  });
}

function hostText(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}
