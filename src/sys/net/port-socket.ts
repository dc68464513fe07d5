/** Sockets made here, at once, in the thread's network namespace, to be served by Node or by nobody. */
import { addressBytes } from './ip-address.js';
import { closeFd } from '../files/fd.js';
import { libc } from '../ffi/libc.js';
import {
  bind,
  listen,
  SOCK_CLOEXEC,
  SOCK_DGRAM,
  SOCK_NONBLOCK,
  SOCK_STREAM,
  socket,
  SOL_SOCKET,
} from './socket-calls.js';

// linux/socket.h, linux/in.h, linux/in6.h, linux/filter.h
const AF_INET = 2;
const AF_INET6 = 10;
const IPPROTO = { tcp: 6, udp: 17, sctp: 132 } as const;
const SO_REUSEADDR = 2;
const SO_ATTACH_FILTER = 26;
const IPPROTO_IPV6 = 41;
const IPV6_V6ONLY = 26;
const BPF_RET_K = 0x06;
const BACKLOG = 511;
const SOCKADDR_BYTES = 28;

const getsockname = libc.checked<[fd: number, address: Uint8Array, length: Uint32Array]>(
  'getsockname',
  'int getsockname(int fd, void *address, void *length)',
);
const setsockopt = libc.checked<[fd: number, level: number, name: number, value: Uint8Array, length: number]>(
  'setsockopt',
  'int setsockopt(int fd, int level, int name, const void *value, uint32_t length)',
);

/** struct sock_fprog with one instruction: keep nothing of any packet. */
const dropProgram = Buffer.alloc(8);
dropProgram.writeUInt16LE(BPF_RET_K, 0);

export interface PortSocket {
  readonly fd: number;
  readonly port: number;
}

/**
 * Binds an address and a port (0: a free one of the ephemeral range); stream sockets listen. The caller closes it.
 * @throws EngineError code EADDRINUSE, EADDRNOTAVAIL, EACCES, EPROTONOSUPPORT where the kernel has no such protocol.
 */
export function bindPort(protocol: keyof typeof IPPROTO, ip: string, port: number): PortSocket {
  const bytes = addressBytes(ip);
  const isIpv6 = bytes.length === 16;
  const fd = socket(
    isIpv6 ? AF_INET6 : AF_INET,
    (protocol === 'udp' ? SOCK_DGRAM : SOCK_STREAM) | SOCK_NONBLOCK | SOCK_CLOEXEC,
    IPPROTO[protocol],
  );
  try {
    // Connections that linger from the last time are no reason to refuse; for UDP it would let two have one port.
    if (protocol !== 'udp') setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, one, 4);
    if (isIpv6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, one, 4);
    const address = Buffer.alloc(SOCKADDR_BYTES);
    address.writeUInt16LE(isIpv6 ? AF_INET6 : AF_INET, 0);
    address.writeUInt16BE(port, 2);
    bytes.copy(address, isIpv6 ? 8 : 4);
    bind(fd, address, isIpv6 ? SOCKADDR_BYTES : 16);
    if (protocol !== 'udp') listen(fd, BACKLOG);
    getsockname(fd, address, Uint32Array.of(SOCKADDR_BYTES));
    return { fd, port: address.readUInt16BE(2) };
  } catch (error) {
    closeFd(fd);
    throw error;
  }
}

/**
 * Makes a stream socket of this thread's network namespace, bound to nothing yet, for Node to connect. The caller owns
 * it.
 */
export function streamSocket(family: 4 | 6): number {
  return socket(family === 6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, IPPROTO.tcp);
}

const one = Buffer.from(Int32Array.of(1).buffer);

/** Lets the socket hear nothing, so that nobody waits for it to answer. */
export function dropAllPackets(fd: number): void {
  const program = Buffer.alloc(16);
  program.writeUInt16LE(1, 0);
  program.writeBigUInt64LE(libc.addressOf(dropProgram), 8);
  setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, program, 16);
}
