/** Tells who is at the other end of a connected socket, as the kernel knows it. */
import { libc, syscallError } from '../ffi/libc.js';

// linux/socket.h; the same on every architecture that we have binaries for.
const SOL_SOCKET = 1;
const SO_PEERCRED = 17;
const AF_INET = 2;
const AF_INET6 = 10;

/** The process that connected, with the ids that it had then (unix(7), SO_PEERCRED). */
export interface UnixPeer {
  readonly kind: 'unix';
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
}

export interface TcpPeer {
  readonly kind: 'tcp';
  /** `192.0.2.1:40000` or `[2001:db8::1]:40000`. */
  readonly address: string;
}

const getsockopt = libc.checked<[fd: number, level: number, name: number, value: Int32Array, length: Uint32Array]>(
  'getsockopt',
  'int getsockopt(int fd, int level, int name, _Out_ void *value, _Inout_ uint32_t *length)',
);
const getpeername = libc.func<[fd: number, address: Uint8Array, length: Uint32Array]>(
  'int getpeername(int fd, _Out_ void *address, _Inout_ uint32_t *length)',
);

/** Returns the peer. @throws EngineError code EBADF, ENOTCONN when a tcp client has already gone. */
export function socketPeer(fd: number): UnixPeer | TcpPeer {
  const address = Buffer.alloc(128);
  if (getpeername(fd, address, Uint32Array.of(address.length)) < 0) throw syscallError('getpeername', libc.errno());
  const family = new Uint16Array(address.buffer, address.byteOffset, 1)[0];
  if (family === AF_INET)
    return { kind: 'tcp', address: `${address.subarray(4, 8).join('.')}:${address.readUInt16BE(2)}` };
  if (family === AF_INET6)
    return { kind: 'tcp', address: ipv6Address(address.subarray(8, 24), address.readUInt16BE(2)) };
  const [pid = 0, uid = 0, gid = 0] = peerCredentials(fd);
  return { kind: 'unix', pid, uid, gid };
}

function peerCredentials(fd: number): Uint32Array {
  const credentials = new Int32Array(3);
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, credentials, Uint32Array.of(credentials.byteLength));
  return new Uint32Array(credentials.buffer);
}

function ipv6Address(bytes: Buffer, port: number): string {
  const isMapped = bytes.subarray(0, 10).every((byte) => byte === 0) && bytes.readUInt16BE(10) === 0xffff;
  if (isMapped) return `${bytes.subarray(12).join('.')}:${port}`;
  const groups = Array.from({ length: 8 }, (_, i) => bytes.readUInt16BE(2 * i).toString(16));
  return `[${new URL(`http://[${groups.join(':')}]`).hostname.slice(1, -1)}]:${port}`;
}
