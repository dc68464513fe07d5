/** Large buffers for reading and writing logs, shared by all of them: a log that rests holds none. */

export const POOLED_BYTES = 256 * 1024;
/** What is kept for reuse; a burst beyond it is left to the garbage collector. */
const KEPT = 16;

const free: Buffer[] = [];

/** A buffer of POOLED_BYTES with anything in it. */
export function takeBuffer(): Buffer {
  return free.pop() ?? Buffer.allocUnsafeSlow(POOLED_BYTES);
}

/** Gives a buffer back; nobody may use it any more. */
export function giveBuffer(buffer: Buffer): void {
  if (buffer.length === POOLED_BYTES && free.length < KEPT) free.push(buffer);
}
