/** Listening sockets: Node owns them, and every accepted connection is given to uWebSockets.js. */
import { chmod, chown, lstat, unlink } from 'node:fs/promises';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { setImmediate } from 'node:timers/promises';
import { EngineError, conflict, invalid, type ErrorKind } from '../errors/engine-error.js';
import type { Logger } from '../ports/logger.js';
import { duplicateFd } from '../sys/fd.js';
import { Gate } from './gate.js';
import type { ConnectionPool } from './connection-pool.js';

export type ListenSpec =
  /** A stale socket file is replaced, and the file is removed at the close. Mode 0660, group `gid` or our own. */
  | { readonly kind: 'unix'; readonly path: string; readonly gid?: number }
  /** Port 0: any free one, which `address` then tells. */
  | { readonly kind: 'tcp'; readonly host: string; readonly port: number };

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
}

const SOCKET_MODE = 0o660;
/** sockaddr_un.sun_path, without the final NUL (unix(7)). */
const MAX_PATH_BYTES = 107;
/** Time for a probed socket to answer a connect; a full backlog counts as alive. */
const PROBE_MS = 1_000;

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
  const gate = new Gate(services.maxInFlight);
  const server = createServer({ pauseOnConnect: true, allowHalfOpen: true, noDelay: true, keepAlive: true }, (socket) => {
    accept(socket, gate, services);
  });
  if (spec.kind === 'unix') {
    await removeStaleSocket(spec.path);
    await listenUnix(server, spec.path, spec.gid);
  } else {
    await bind(server, `${spec.host}:${spec.port}`, () => server.listen(spec.port, spec.host));
  }
  server.on('error', (err) => services.logger.error({ err }, 'accepting connections failed'));
  const port = spec.kind === 'tcp' ? (server.address() as AddressInfo).port : undefined;
  let closed: Promise<void> | undefined;
  return {
    address: spec.kind === 'unix' ? `unix://${spec.path}` : `tcp://${hostText(spec.host)}:${port}`,
    port,
    close: (limitMs) => (closed ??= close(server, gate, limitMs)),
  };
}

function accept(socket: Socket, gate: Gate, services: ListenServices): void {
  try {
    services.pool.serve(duplicateFd(descriptorOf(socket)), gate);
  } catch (err) {
    // Out of descriptors, or the client is gone already: this connection ends, the daemon does not.
    services.logger.warn({ err }, 'a connection could not be served');
  }
  socket.destroy();
}

/** Node has no public name for it; the handle has had this property since it exists. */
function descriptorOf(socket: Socket): number {
  const { _handle: handle } = socket as unknown as { readonly _handle: { readonly fd: number } | null };
  return handle?.fd ?? -1;
}

async function close(server: Server, gate: Gate, limitMs: number): Promise<void> {
  // Node also removes the file of a unix socket.
  const stopped = new Promise<void>((resolve) => server.close(() => resolve()));
  gate.closing = true;
  for (const connection of gate.connections) {
    if (connection.idle) connection.close();
  }
  const limit = AbortSignal.timeout(limitMs);
  await Promise.race([gate.idle(), new Promise<void>((resolve) => limit.addEventListener('abort', () => resolve()))]);
  for (const exchange of gate.pending) exchange.abort();
  // The last replies leave the HTTP library's buffer when its turn of the event loop ends.
  await setImmediate();
  for (const connection of gate.connections) connection.close();
  await stopped;
}

function bind(server: Server, name: string, start: () => void): Promise<void> {
  return new Promise((resolve, reject) => {
    const onError = (cause: NodeJS.ErrnoException): void => {
      const kind = KIND_BY_ERRNO[cause.code ?? ''] ?? 'internal';
      reject(new EngineError(kind, `cannot listen on ${name}: ${cause.message}`, { code: 'LISTEN', cause }));
    };
    server.once('error', onError);
    server.once('listening', () => {
      server.removeListener('error', onError);
      resolve();
    });
    start();
  });
}

async function listenUnix(server: Server, path: string, gid: number | undefined): Promise<void> {
  if (Buffer.byteLength(path) > MAX_PATH_BYTES) {
    throw invalid(`unix socket path ${path} is longer than ${MAX_PATH_BYTES} bytes`, { code: 'LISTEN' });
  }
  await bind(server, path, () => {
    // The socket is bound inside this call: nobody else can connect before the mode is set below.
    const previous = process.umask(0o177);
    try {
      server.listen({ path });
    } finally {
      process.umask(previous);
    }
  });
  try {
    if (gid !== undefined) await chown(path, -1, gid);
    await chmod(path, SOCKET_MODE);
  } catch (cause) {
    server.close();
    throw new EngineError('forbidden', `cannot set group and mode of ${path}`, { code: 'LISTEN', cause });
  }
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
