/**
 * Listening sockets that we accept from ourselves. Node accepts one connection for each turn of its event loop, which
 * starves new clients while a thousand others are busy, and makes a Socket of each.
 */
import { createServer, type AddressInfo } from 'node:net';
import { closeFd, duplicateFd } from '../files/fd.js';
import { libc, syscallError } from '../ffi/libc.js';
import {
  AF_UNIX,
  bind,
  listen,
  SOCK_CLOEXEC,
  SOCK_NONBLOCK,
  SOCK_STREAM,
  socket,
  SOL_SOCKET,
  unixAddress,
} from './socket-calls.js';
import { socketName } from './socket-name.js';

// linux/socket.h, linux/tcp.h; the same on every architecture that we have binaries for.
const SO_KEEPALIVE = 9;
const IPPROTO_TCP = 6;
const TCP_NODELAY = 1;
const TCP_KEEPIDLE = 4;
const TCP_KEEPINTVL = 5;
const TCP_KEEPCNT = 6;
/**
 * A peer that is silent for so long is asked whether it is there, and again after as long. The kernel would begin after
 * two hours, for which each machine that lost its power kept its connections.
 */
const PROBE_S = 15;
/** A peer that has not answered so many times is gone. Both are Go's numbers, and so dockerd's. */
const PROBES = 9;
/** So many connections may wait to be accepted; the kernel lowers it to net.core.somaxconn. */
const BACKLOG = 4096;
/** Nobody is there (any more): the reasons of accept(2) to go on, or to come back later. */
const EINTR = 4;
const EAGAIN = 11;
const ECONNABORTED = 103;

const fchmod = libc.checked<[fd: number, mode: number]>('fchmod', 'int fchmod(int fd, uint32_t mode)');
const setsockopt = libc.checked<[fd: number, level: number, name: number, value: Int32Array, length: number]>(
  'setsockopt',
  'int setsockopt(int fd, int level, int name, const void *value, uint32_t length)',
);
const accept4 = libc.func<[fd: number, address: null, length: null, flags: number]>(
  'int accept4(int fd, void *address, void *length, int flags)',
);

/**
 * Listens on a new socket file of the given mode, which it has from the start.
 * @throws EngineError code EADDRINUSE when the path exists, ENOENT, EACCES.
 */
export function listenOnUnix(path: string, mode: number): number {
  const fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  try {
    // Linux gives the file the mode of the socket, less the umask: never more than what is asked for.
    fchmod(fd, mode);
    const address = unixAddress(`${path}\0`);
    bind(fd, address, address.length);
    listen(fd, BACKLOG);
  } catch (error) {
    closeFd(fd);
    throw error;
  }
  return fd;
}

/**
 * Listens on a tcp address; host may be a name, port 0 is any free one.
 * @throws Error of Node, code EADDRINUSE, EADDRNOTAVAIL, ENOTFOUND, EACCES.
 */
export async function listenOnTcp(host: string, port: number): Promise<{ readonly fd: number; readonly port: number }> {
  const server = createServer();
  await new Promise<void>((resolve, reject) => {
    server.once('error', reject);
    server.listen({ host, port, backlog: BACKLOG }, resolve);
  });
  // Node resolves and binds; its descriptor has no public name, but the property is as old as the handle.
  const { _handle: handle } = server as unknown as { readonly _handle: { readonly fd: number } };
  const bound = (server.address() as AddressInfo).port;
  const fd = duplicateFd(handle.fd);
  server.close();
  prepareConnections(fd);
  return { fd, port: bound };
}

/** Describes a tcp socket that an earlier process has bound. @throws EngineError code ENOTSOCK, EBADF. */
export function listeningOnTcp(fd: number): { readonly fd: number; readonly port: number } {
  prepareConnections(fd);
  return { fd, port: Number(new URL(socketName(fd).address.replace(/^tcp:/, 'http:')).port || 80) };
}

/** Sets what the connections of a tcp listener inherit: dead peers are noticed, and small replies are not held back. */
export function prepareConnections(fd: number): void {
  for (const [level, name, value] of [
    [SOL_SOCKET, SO_KEEPALIVE, 1],
    [IPPROTO_TCP, TCP_KEEPIDLE, PROBE_S],
    [IPPROTO_TCP, TCP_KEEPINTVL, PROBE_S],
    [IPPROTO_TCP, TCP_KEEPCNT, PROBES],
    [IPPROTO_TCP, TCP_NODELAY, 1],
  ] as const) {
    setsockopt(fd, level, name, Int32Array.of(value), 4);
  }
}

/**
 * Accepts the next connection that waits; undefined when none does.
 * @throws EngineError code EMFILE, ENFILE, ENOBUFS, ENOMEM when the system has no room for it.
 */
export function acceptFrom(fd: number): number | undefined {
  for (;;) {
    const connection = accept4(fd, null, null, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (connection >= 0) return connection;
    const errno = libc.errno();
    if (errno === EAGAIN) return undefined;
    if (errno !== EINTR && errno !== ECONNABORTED) throw syscallError('accept4', errno);
  }
}
