/** Hands a client's bytes over to a worker, in shared memory (workers/receive-pieces.ts). */
import type { MessagePort } from 'node:worker_threads';
import type { PieceSource } from '../ports/archives.js';
import { libc } from '../sys/ffi/libc.js';

/** Bytes are sent by the slot, because a message to another thread costs more than the small pieces of clients. */
export const SLOT_BYTES = 256 * 1024;
const SLOTS = 8;
/** The source may have so much on its way when it is told to pause: a receive buffer of 512 KiB. */
const RESERVED_SLOTS = 3;

/**
 * Memory whose slots have all come back, for who sends next, if that is before a collection: shared memory cannot be
 * freed.
 */
let spare: WeakRef<Uint8Array<SharedArrayBuffer>> | undefined;

/** V8 copies to shared memory word by word, which is half as fast. */
const memcpy = libc.func<[to: Uint8Array, from: Uint8Array, size: number], undefined>(
  'void memcpy(void *to, const void *from, size_t size)',
);

/**
 * Sends the memory (a SharedArrayBuffer); then, in order and beginning anew after the last slot, how many bytes the
 * next slot has got; then null. A message from the other side gives back the oldest slot. All but the last are full.
 * Resolves when all is sent, or the port is closed; what still comes is ignored then, so that the source need not
 * stay paused. Rejects when the source fails.
 */
export function sendPieces(source: PieceSource, port: MessagePort): Promise<void> {
  const memory = spare?.deref() ?? new Uint8Array(new SharedArrayBuffer(SLOTS * SLOT_BYTES));
  spare = undefined;
  let filledBytes = 0;
  let returnedSlots = 0;
  /** Pieces that found no room yet. */
  let late: Uint8Array[] = [];
  const slotsInUse = (): number => Math.floor(filledBytes / SLOT_BYTES) - returnedSlots;

  const put = (piece: Uint8Array): void => {
    for (let at = 0; at < piece.length;) {
      if (slotsInUse() === SLOTS) {
        late.push(piece.slice(at));
        return;
      }
      const count = Math.min(piece.length - at, SLOT_BYTES - (filledBytes % SLOT_BYTES));
      memcpy(memory.subarray(filledBytes % memory.length), at === 0 ? piece : piece.subarray(at), count);
      at += count;
      filledBytes += count;
      if (filledBytes % SLOT_BYTES === 0) port.postMessage(SLOT_BYTES, []);
    }
  };

  return new Promise((resolve, reject) => {
    let isEnded = false;
    let isClosed = false;
    const finish = (): void => {
      if (!isEnded || late.length > 0) return;
      if (filledBytes % SLOT_BYTES > 0) port.postMessage(filledBytes % SLOT_BYTES, []);
      port.postMessage(null, []);
      resolve();
    };
    port.on('message', () => {
      returnedSlots++;
      const waiting = late;
      late = [];
      for (const piece of waiting) put(piece);
      if (slotsInUse() <= SLOTS - RESERVED_SLOTS) source.resume();
      if (waiting.length > 0) finish();
      // Nobody reads it any more.
      if (isEnded && returnedSlots === Math.ceil(filledBytes / SLOT_BYTES)) spare = new WeakRef(memory);
    });
    port.once('close', () => {
      isClosed = true;
      late = [];
      source.resume();
      resolve();
    });
    port.postMessage(memory.buffer, []);
    source.read(
      (piece) => {
        if (isClosed) return;
        if (late.length > 0) late.push(piece.slice());
        else put(piece);
        if (slotsInUse() > SLOTS - RESERVED_SLOTS) source.pause();
      },
      (failure) => {
        if (failure) return reject(failure);
        isEnded = true;
        finish();
      },
    );
  });
}
