/**
 * The memory that the bytes of a copy are received into, and what writes them from there. A client that is as fast as a
 * disk gets a second thread for its large files, which writes while this one receives.
 */
import type { MessagePort } from 'node:worker_threads';
import { endLoan, LentWriter, SLOT_BYTES, WRITER_WANTED, type WriterLoan, writeWhole } from '../storage/lent-writer.js';
import type { FileWriter } from '../storage/tar/sparse-writer.js';
import { freeBuffer } from '../sys/process/free-buffer.js';
import type { PieceMemory } from './socket-body.js';

/** While a larger piece is written by the same thread, the client fills the socket and has to wait. */
const OWN_BYTES = 256 * 1024;
/** So much of files must have come in one go, in so short a time: a start of a thread takes 30 ms of processor time. */
const STRETCH_BYTES = 8 << 20;
const STRETCH_MS = 200;
/** A writer that got less in such a time is given back. */
const LOOK_MS = 1000;
const LEAST_BYTES = 16 << 20;

export class CopyMemory implements PieceMemory, FileWriter {
  readonly enoughBytes = Infinity;
  readonly #port: MessagePort;
  #own: Buffer<ArrayBuffer> | undefined;
  #writer: LentWriter | undefined;
  #look: NodeJS.Timeout | undefined;
  /** The next piece begins there in its file, as far as is known. */
  #position = 0;
  #stretchBytes = 0;
  #stretchBegin = 0;

  /** @param port is told WRITER_WANTED, and may bring a WriterLoan then. */
  constructor(port: MessagePort) {
    this.#port = port;
    port.on('message', (message: unknown) => {
      if (typeof message === 'object' && message !== null && 'control' in message) this.#borrow(message as WriterLoan);
    });
  }

  get maySleep(): boolean {
    return this.#writer !== undefined;
  }

  /** Returns memory up to where a large block of the file ends: in whole ones it is written faster. */
  next(): Buffer | Promise<Buffer> {
    const writer = this.#writer?.isPresent === true ? this.#writer : undefined;
    const blockBytes = writer ? SLOT_BYTES : OWN_BYTES;
    const bytes = blockBytes - (this.#position % blockBytes);
    this.#position += bytes;
    if (!writer) return (this.#own ??= Buffer.allocUnsafeSlow(OWN_BYTES)).subarray(0, bytes);
    const slot = writer.nextSlot();
    return slot instanceof Promise ? slot.then((free) => free.subarray(0, bytes)) : slot.subarray(0, bytes);
  }

  free(): void {
    if (this.#own) freeBuffer(this.#own);
    this.#own = undefined;
  }

  write(fd: number, chunk: Buffer, from: number, to: number, position: number): void {
    this.#position = position + to - from;
    if (this.#writer?.takes(chunk, to - from) === true) {
      this.#writer.give(fd, chunk, from, to - from, position);
      return;
    }
    writeWhole(fd, chunk, from, to, position);
    if (chunk.buffer === this.#own?.buffer) this.#count(to - from);
  }

  settle(): void {
    this.#writer?.settle();
  }

  /** Gives back what was lent. Nothing is written any more. */
  close(): void {
    clearInterval(this.#look);
    this.#writer?.end();
    this.#writer = undefined;
  }

  #count(bytes: number): void {
    this.#stretchBytes += bytes;
    if (this.#stretchBytes < STRETCH_BYTES) return;
    const now = performance.now();
    if (now - this.#stretchBegin < STRETCH_MS && !this.#writer) this.#port.postMessage(WRITER_WANTED, []);
    this.#stretchBegin = now;
    this.#stretchBytes = 0;
  }

  #borrow(loan: WriterLoan): void {
    // It has asked twice before the first one came.
    if (this.#writer) return endLoan(loan);
    const writer = new LentWriter(loan);
    this.#writer = writer;
    let before = 0;
    this.#look = setInterval(() => {
      if (writer.givenBytes - before < LEAST_BYTES && writer.isIdle) this.close();
      before = writer.givenBytes;
    }, LOOK_MS).unref();
  }
}
