/**
 * File descriptors that Node keeps to itself: duplicating, closing, and looking into sockets without taking anything.
 */
import { constants } from 'node:fs';
import koffi from 'koffi';
import { libc, syscallError } from '../ffi/libc.js';

// linux/fcntl.h and linux/socket.h; the same on every architecture that we have binaries for.
const F_DUPFD_CLOEXEC = 1030;
const F_GETFL = 3;
const F_SETFL = 4;
const F_SETPIPE_SZ = 1031;
const F_GETPIPE_SZ = 1032;
const MSG_PEEK = 0x02;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;
const EAGAIN = 11;
const SHUT_WR = 1;
const SHUT_RDWR = 2;
// poll.h
const POLLIN = 1;
/** A struct iovec: an address and a length, of 64 bits each, with the low ones first. */
const IOVEC_WORDS = 4;

const fcntl = libc.checked<[fd: number, command: number, argument: number]>(
  'fcntl',
  'int fcntl(int fd, int command, int argument)',
);
const close = libc.checked<[fd: number]>('close', 'int close(int fd)');
const shutdown = libc.func<[fd: number, how: number]>('int shutdown(int fd, int how)');
const recv = libc.func<[fd: number, buffer: Uint8Array, length: number, flags: number]>(
  'int64_t recv(int fd, void *buffer, size_t length, int flags)',
);
const readv = libc.func<[fd: number, parts: Uint32Array, count: number]>(
  'int64_t readv(int fd, const void *parts, int count)',
);
const poll = libc.func<[entry: Int16Array, count: number, milliseconds: number]>(
  'int poll(void *entry, unsigned long count, int milliseconds)',
);
const send = libc.func<[fd: number, bytes: Uint8Array, length: number, flags: number]>(
  'int64_t send(int fd, const void *bytes, size_t length, int flags)',
);

/**
 * Returns a new descriptor (above stderr, closed on exec) for the same open file. The caller closes it.
 * @throws EngineError code EBADF, EMFILE.
 */
export function duplicateFd(fd: number): number {
  return fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

/** Makes reads and writes wait, for a program that gets the descriptor. @throws EngineError code EBADF. */
export function makeBlocking(fd: number): void {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL, 0) & ~constants.O_NONBLOCK);
}

/**
 * Gives a pipe room for this many bytes.
 * @throws EngineError code EPERM when this user may not have so large a one, EBUSY when more is in it.
 */
export function setPipeRoom(fd: number, bytes: number): void {
  fcntl(fd, F_SETPIPE_SZ, bytes);
}

/** Returns how many bytes a pipe has room for. @throws EngineError code EBADF, also when it is no pipe. */
export function pipeRoom(fd: number): number {
  return fcntl(fd, F_GETPIPE_SZ, 0);
}

/** Closes a descriptor that no Node object owns. @throws EngineError code EBADF. */
export function closeFd(fd: number): void {
  close(fd);
}

/** Tells the other side of a socket that nothing more will be sent. */
export function endSending(fd: number): void {
  shutdown(fd, SHUT_WR);
}

/** Ends a connection for everybody who has a descriptor of it; each of them is still to be closed. */
export function hangUp(fd: number): void {
  shutdown(fd, SHUT_RDWR);
}

/** Ends a connection for everybody who has a descriptor of it, and closes this one. @throws EngineError code EBADF. */
export function endConnection(fd: number): void {
  hangUp(fd);
  close(fd);
}

/**
 * Copies what a socket has received, without taking it and without waiting.
 * @returns how many bytes; 0 when the peer has closed; undefined when nothing is there yet.
 * @throws EngineError code ECONNRESET, EBADF.
 */
export function peekSocket(fd: number, into: Uint8Array): number | undefined {
  return receive(fd, into, into.length, MSG_PEEK | MSG_DONTWAIT);
}

/** Takes bytes that `peekSocket` has shown. @throws EngineError code ECONNRESET, EBADF. */
export function takeFromSocket(fd: number, into: Uint8Array, length: number): void {
  receive(fd, into, length, MSG_DONTWAIT);
}

/** Takes up to `length` bytes; else it behaves as `peekSocket`. */
export function receiveFromSocket(fd: number, into: Uint8Array, length: number): number | undefined {
  return receive(fd, into, length, MSG_DONTWAIT);
}

/** Parts of buffers that are filled one after the other (struct iovec). */
export class Parts {
  readonly #words: Uint32Array;
  #count = 0;

  constructor(most: number) {
    this.#words = new Uint32Array(most * IOVEC_WORDS);
  }

  get count(): number {
    return this.#count;
  }

  clear(): void {
    this.#count = 0;
  }

  /** @param address that of the first byte; the memory must stay until the parts are filled. */
  add(address: number, length: number): void {
    const at = this.#count * IOVEC_WORDS;
    this.#words[at] = address;
    this.#words[at + 1] = address / 2 ** 32;
    this.#words[at + 2] = length;
    this.#count += 1;
  }

  /** Fills them from a socket that does not block; else it behaves as `peekSocket`. */
  receive(fd: number): number | undefined {
    return received(readv(fd, this.#words, this.#count));
  }
}

/** A struct pollfd for all calls: C can have the address of a new array only when it gets memory of its own. */
const polled = new Int16Array(4);

/** Waits until a descriptor can be read, or has failed, for so long at most. */
export function awaitReadable(fd: number, milliseconds: number): boolean {
  polled[0] = fd;
  polled[1] = fd >> 16;
  polled[2] = POLLIN;
  return poll(polled, 1, milliseconds) > 0;
}

/** Sends what a socket takes without waiting. @returns how many bytes. @throws EngineError code EPIPE, ECONNRESET. */
export function sendToSocket(fd: number, bytes: Uint8Array): number {
  const count = send(fd, bytes, bytes.length, MSG_DONTWAIT | MSG_NOSIGNAL);
  if (count >= 0) return count;
  const errno = libc.errno();
  if (errno === EAGAIN) return 0;
  throw syscallError('send', errno);
}

/** Calls back once when a descriptor can be read (or has failed), unless it is cancelled before. */
export function onceReadable(fd: number, callback: () => void): { cancel(): void } {
  const handle = koffi.node.poll(fd, { readable: true }, () => {
    handle.close();
    callback();
  });
  return { cancel: () => handle.close() };
}

/** Calls back once when a descriptor takes bytes again, or when the other side is gone. */
export function onceWritable(fd: number, callback: () => void): void {
  const handle = koffi.node.poll(fd, { writable: true }, () => {
    handle.close();
    callback();
  });
}

/** Calls back once when the other side of a socket sends no more, or is gone, unless it is cancelled before. */
export function onceEnded(fd: number, callback: () => void): { cancel(): void } {
  const handle = koffi.node.poll(fd, { disconnect: true }, () => {
    handle.close();
    callback();
  });
  return { cancel: () => handle.close() };
}

/** Calls back whenever a descriptor can be read, in every turn of the event loop until it cannot. */
export interface ReadableWatch {
  pause(): void;
  resume(): void;
  /** Ends the watch. Call it before the descriptor is closed. */
  close(): void;
}

export function watchReadable(fd: number, callback: () => void): ReadableWatch {
  const handle = koffi.node.poll(fd, { readable: true }, callback);
  return {
    pause: () => handle.stop(),
    resume: () => handle.start({ readable: true }, callback),
    close: () => handle.close(),
  };
}

function receive(fd: number, into: Uint8Array, length: number, flags: number): number | undefined {
  return received(recv(fd, into, length, flags));
}

function received(count: number): number | undefined {
  if (count >= 0) return count;
  const errno = libc.errno();
  if (errno === EAGAIN) return undefined;
  throw syscallError('recv', errno);
}
