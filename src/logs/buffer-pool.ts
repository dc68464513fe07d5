/** Large buffers for reading and writing logs, shared by all logs, so that an idle log holds none. */

export const POOLED_BYTES = 256 * 1024;
/** At most so many buffers are kept for reuse; the garbage collector takes the others. */
const KEPT = 16;

const free: Buffer[] = [];

/** Returns a buffer of POOLED_BYTES with arbitrary content. */
export function takeBuffer(): Buffer {
  return free.pop() ?? Buffer.allocUnsafeSlow(POOLED_BYTES);
}

/** Gives a buffer back; nobody may use it any more. */
export function giveBuffer(buffer: Buffer): void {
  if (buffer.length === POOLED_BYTES && free.length < KEPT) free.push(buffer);
}
