/** One end of a pair of sockets between two processes: messages that stay apart, with descriptors (`socketPair`). */
import { setTimeout as sleep } from 'node:timers/promises';
import { isEngineError } from '../../errors/engine-error.js';
import { closeFd, onceReadable, onceWritable } from '../files/fd.js';
import { receiveDescriptors, sendDescriptors, type DescriptorMessage } from './descriptor-messages.js';

const MESSAGE_BYTES = 64 << 10;
/** The kernel limits the descriptors that an ordinary user has under way, and does not tell when there are fewer. */
const RETRY_MS = 5;

export class MessageSocket {
  readonly #fd: number;
  #isClosed = false;

  /** @param fd is given away. */
  constructor(fd: number) {
    this.#fd = fd;
  }

  /** Sends a text. The descriptors still belong to the caller. @throws EngineError code EPIPE when nobody listens. */
  send(text: string, fds: readonly number[] = []): void {
    sendDescriptors(this.#fd, Buffer.from(text), fds);
  }

  /** Does the same as `send`, when the other end has read so much that there is room. One call at a time. */
  async sendInTime(text: string, fds: readonly number[]): Promise<void> {
    for (;;) {
      try {
        return this.send(text, fds);
      } catch (error) {
        if (!isEngineError(error)) throw error;
        if (error.code === 'EAGAIN') await new Promise<void>((resolve) => onceWritable(this.#fd, resolve));
        else if (error.code === 'ETOOMANYREFS') await sleep(RETRY_MS);
        else throw error;
      }
    }
  }

  /**
   * Resolves with the next message, whose descriptors belong to the caller; undefined when the other end is gone. One
   * call at a time.
   */
  async next(): Promise<DescriptorMessage | undefined> {
    for (;;) {
      if (this.#isClosed) return undefined;
      const message = this.#receive();
      if (message !== undefined) return message.bytes.length === 0 ? undefined : message;
      await new Promise<void>((resolve) => void onceReadable(this.#fd, resolve));
    }
  }

  #receive(): DescriptorMessage | undefined {
    try {
      return receiveDescriptors(this.#fd, MESSAGE_BYTES);
    } catch {
      return { bytes: Buffer.alloc(0), fds: [] };
    }
  }

  /** Idempotent; not during `next`. */
  close(): void {
    if (!this.#isClosed) closeFd(this.#fd);
    this.#isClosed = true;
  }
}
