/** Descriptors that travel over unix sockets with a message (SCM_RIGHTS of unix(7)). Node can do neither. */
import { libc, syscallError } from '../ffi/libc.js';
import { closeFd } from '../files/fd.js';
import { SOL_SOCKET } from './socket-calls.js';

// linux/socket.h; the same on every architecture that we have binaries for.
const SCM_RIGHTS = 1;
const MSG_PEEK = 0x2;
const MSG_CTRUNC = 0x8;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;
const MSG_CMSG_CLOEXEC = 0x40000000;
const SO_PEEK_OFF = 42;
const EAGAIN = 11;
const EMFILE = 24;
/** SCM_MAX_FD of the kernel: so many descriptors go with one message. */
export const MAX_DESCRIPTORS = 253;

/** `struct msghdr` of 64-bit systems: name, its length, iov, their number, control, its length, flags. */
const HEADER_BYTES = 56;
/** `struct cmsghdr`: length, level, type. */
const CONTROL_HEADER_BYTES = 16;

const sendmsg = libc.checked<[fd: number, message: Uint8Array, flags: number]>(
  'sendmsg',
  'int64_t sendmsg(int fd, const void *message, int flags)',
);
const recvmsg = libc.func<[fd: number, message: Uint8Array, flags: number]>(
  'int64_t recvmsg(int fd, _Inout_ void *message, int flags)',
);

const setsockopt = libc.checked<[fd: number, level: number, name: number, value: Int32Array, length: number]>(
  'setsockopt',
  'int setsockopt(int fd, int level, int name, const void *value, uint32_t length)',
);

/**
 * Sends a message with descriptors, without waiting.
 * @param address a sockaddr_un for a socket that is not connected.
 * @throws EngineError code EAGAIN when the receiver is behind, EPIPE, ECONNREFUSED, ENOENT, ETOOMANYREFS.
 */
export function sendDescriptors(fd: number, bytes: Buffer, fds: readonly number[], address?: Buffer): void {
  const control = Buffer.alloc(fds.length === 0 ? 0 : controlBytes(fds.length));
  if (fds.length > 0) {
    control.writeBigUInt64LE(BigInt(CONTROL_HEADER_BYTES + fds.length * 4), 0);
    control.writeInt32LE(SOL_SOCKET, 8);
    control.writeInt32LE(SCM_RIGHTS, 12);
    fds.forEach((each, i) => control.writeInt32LE(each, CONTROL_HEADER_BYTES + i * 4));
  }
  const { header, held } = messageHeader(bytes, control, address);
  sendmsg(fd, header, MSG_DONTWAIT | MSG_NOSIGNAL);
  // The structures that the header points to have to live until here.
  held.length = 0;
}

export interface DescriptorMessage {
  readonly bytes: Buffer;
  /** They belong to the receiver, and are closed on exec. */
  readonly fds: readonly number[];
}

/**
 * Receives a message of up to `maxBytes`, without waiting. With `peeks` it stays where it is; its descriptors are given
 * all the same.
 * @returns undefined when none is there; a message without bytes when the other side is gone.
 * @throws EngineError code ECONNRESET, EMFILE when there was no room for all of its descriptors.
 */
export function receiveDescriptors(
  fd: number,
  maxBytes: number,
  { peeks = false } = {},
): DescriptorMessage | undefined {
  const bytes = Buffer.alloc(maxBytes);
  const control = Buffer.alloc(controlBytes(MAX_DESCRIPTORS));
  const { header, held } = messageHeader(bytes, control);
  const count = recvmsg(fd, header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC | (peeks ? MSG_PEEK : 0));
  const errno = count < 0 ? libc.errno() : 0;
  held.length = 0;
  if (errno === EAGAIN) return undefined;
  if (errno !== 0) throw syscallError('recvmsg', errno);
  const fds: number[] = [];
  const controlEnd = Number(header.readBigUInt64LE(40));
  if (controlEnd >= CONTROL_HEADER_BYTES && control.readInt32LE(12) === SCM_RIGHTS) {
    const end = Math.min(Number(control.readBigUInt64LE(0)), controlEnd);
    for (let at = CONTROL_HEADER_BYTES; at + 4 <= end; at += 4) fds.push(control.readInt32LE(at));
  }
  if ((header.readInt32LE(48) & MSG_CTRUNC) !== 0) {
    for (const each of fds) closeFd(each);
    throw syscallError('recvmsg', EMFILE);
  }
  return { bytes: bytes.subarray(0, count), fds };
}

/**
 * Says whether each peek of a socket goes on behind the one before (SO_PEEK_OFF of socket(7)), from the first message
 * on, or always looks at the first message. It is so for everybody who has the socket. @throws EngineError code EBADF.
 */
export function walkMessages(fd: number, goesOn: boolean): void {
  setsockopt(fd, SOL_SOCKET, SO_PEEK_OFF, Int32Array.of(goesOn ? 0 : -1), 4);
}

function controlBytes(fds: number): number {
  return CONTROL_HEADER_BYTES + Math.ceil((fds * 4) / 8) * 8;
}

function messageHeader(
  bytes: Buffer,
  control: Buffer,
  address?: Buffer,
): { readonly header: Buffer; readonly held: Buffer[] } {
  const vector = Buffer.alloc(16);
  if (bytes.length > 0) vector.writeBigUInt64LE(libc.addressOf(bytes), 0);
  vector.writeBigUInt64LE(BigInt(bytes.length), 8);
  const header = Buffer.alloc(HEADER_BYTES);
  if (address !== undefined) {
    header.writeBigUInt64LE(libc.addressOf(address), 0);
    header.writeUInt32LE(address.length, 8);
  }
  header.writeBigUInt64LE(libc.addressOf(vector), 16);
  header.writeBigUInt64LE(1n, 24);
  if (control.length > 0) {
    header.writeBigUInt64LE(libc.addressOf(control), 32);
    header.writeBigUInt64LE(BigInt(control.length), 40);
  }
  return { header, held: [bytes, control, vector, ...(address === undefined ? [] : [address])] };
}
