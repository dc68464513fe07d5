/** Our end of a socket pair, read and written without a Node stream around it: half the cost for each piece. */
import koffi from 'koffi';
import { closeFd, hangUp, peekSocket } from '../files/fd.js';
import { libc } from '../ffi/libc.js';

// linux/socket.h; the same on every architecture that we have binaries for.
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;
const SHUT_WR = 1;
const EAGAIN = 11;
const EPIPE = 32;
const ECONNRESET = 104;

const send = libc.func<[fd: number, bytes: Uint8Array, length: number, flags: number]>(
  'int64_t send(int fd, const void *bytes, size_t length, int flags)',
);
const recv = libc.func<[fd: number, bytes: Uint8Array, length: number, flags: number]>(
  'int64_t recv(int fd, void *bytes, size_t length, int flags)',
);
const shutdown = libc.func<[fd: number, how: number]>('int shutdown(int fd, int how)');

/** All ends share this buffer, because what is read is copied out before the next read. */
const received = Buffer.allocUnsafeSlow(64 * 1024);
const NOTHING = Buffer.alloc(0);
const peeked = Buffer.allocUnsafeSlow(1);

export interface PipeEndEvents {
  /** Gets bytes, which belong to the receiver. */
  onData(bytes: Buffer): void;
  /** The other end sends no more. @param isClosed true if it does not receive any more either. */
  onEnd(isClosed: boolean): void;
  /** All that was written has been taken, after a `write` that returned false. */
  onDrain(): void;
}

export class PipeEnd {
  readonly #fd: number;
  readonly #events: PipeEndEvents;
  readonly #poll: ReturnType<typeof koffi.node.poll>;
  /** koffi gives a status first, which its types do not know of. */
  readonly #onReady = (...given: readonly unknown[]): void => {
    const { readable, writable } = given.at(-1) as { readonly readable: boolean; readonly writable: boolean };
    if (writable) this.#flush();
    if (readable && this.#isReading && !this.#isClosed) this.#read();
  };
  /** Bytes that were written and not taken yet. */
  #rest: Buffer = NOTHING;
  #isReading = true;
  #hasEnded = false;
  #isFinished = false;
  #isClosed = false;

  /** Reads from now on, and owns the descriptor. */
  constructor(fd: number, events: PipeEndEvents) {
    this.#fd = fd;
    this.#events = events;
    this.#poll = koffi.node.poll(fd, { readable: true }, this.#onReady);
  }

  /** The other end has sent something, or has ended, and nobody was told yet. */
  get hasUnread(): boolean {
    if (this.#hasEnded || this.#isClosed) return false;
    try {
      return peekSocket(this.#fd, peeked) !== undefined;
    } catch {
      return true;
    }
  }

  /** Nobody receives any more what is written. */
  get isDeaf(): boolean {
    // To send nothing fails only then.
    return this.#isClosed || send(this.#fd, NOTHING, 0, MSG_DONTWAIT | MSG_NOSIGNAL) < 0;
  }

  /** False when the other end is behind: then `onDrain` is called before more is to be written. */
  write(bytes: Buffer): boolean {
    if (this.#isClosed || this.#isFinished) return true;
    if (this.#rest.length > 0) {
      this.#rest = Buffer.concat([this.#rest, bytes]);
      return false;
    }
    const sent = this.#send(bytes);
    if (sent === bytes.length) return true;
    this.#rest = bytes.subarray(sent);
    this.#watch();
    return false;
  }

  /** Ends the writing; reading goes on. */
  finish(): void {
    if (this.#isFinished || this.#isClosed) return;
    this.#isFinished = true;
    if (this.#rest.length === 0) shutdown(this.#fd, SHUT_WR);
  }

  pause(): void {
    if (!this.#isReading) return;
    this.#isReading = false;
    this.#watch();
  }

  resume(): void {
    if (this.#isReading || this.#hasEnded) return;
    this.#isReading = true;
    this.#watch();
  }

  /** Closes the end; nothing is called afterwards. Idempotent. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#poll.close();
    closeFd(this.#fd);
  }

  #read(): void {
    const count = recv(this.#fd, received, received.length, MSG_DONTWAIT);
    if (count > 0) return this.#events.onData(Buffer.from(received.subarray(0, count)));
    const errno = count === 0 ? 0 : libc.errno();
    if (errno === EAGAIN) return;
    this.#hasEnded = true;
    this.pause();
    this.#events.onEnd(errno !== 0 || this.isDeaf);
  }

  #flush(): void {
    if (this.#rest.length === 0) return;
    this.#rest = this.#rest.subarray(this.#send(this.#rest));
    if (this.#rest.length > 0) return;
    if (this.#isFinished) shutdown(this.#fd, SHUT_WR);
    this.#watch();
    this.#events.onDrain();
  }

  /** Sends bytes. Returns how many were taken; all when the other end is gone, because nobody wants them. */
  #send(bytes: Buffer): number {
    const count = send(this.#fd, bytes, bytes.length, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (count >= 0) return count;
    const errno = libc.errno();
    if (errno === EAGAIN) return 0;
    // An error that was thrown out of a callback of koffi would end the process.
    if (errno !== EPIPE && errno !== ECONNRESET) hangUp(this.#fd);
    return bytes.length;
  }

  #watch(): void {
    if (this.#isClosed) return;
    const [readable, writable] = [this.#isReading, this.#rest.length > 0];
    this.#poll.stop();
    if (readable || writable) this.#poll.start({ readable, writable }, this.#onReady);
  }
}
