/**
 * Memory for large pieces of a container's output. Memory of its own for each piece would be faulted in, collected and
 * unmapped at the rate of the output. It is lent: whoever has seen that nobody needs a piece any more gives it back.
 */

/** So much output is taken at a time. */
export const PIECE_BYTES = 256 << 10;
/** The output of a decoder may be a little larger than the records. */
const MEMORY_BYTES = PIECE_BYTES + (4 << 10);
/** Smaller pieces get memory of their own, because many of them may wait for a slow log or client. */
const LENT_BYTES = 32 << 10;
/** So much memory at most is kept for the next pieces. */
const KEPT = 4;

const free: ArrayBuffer[] = [];
const lent = new WeakSet<ArrayBufferLike>();

/** Returns memory for a piece of so many bytes, with any content. What is not given back is collected. */
export function takePiece(bytes: number): Buffer<ArrayBuffer> {
  if (bytes < LENT_BYTES || bytes > MEMORY_BYTES) return Buffer.allocUnsafe(bytes);
  const memory = free.pop() ?? Buffer.allocUnsafeSlow(MEMORY_BYTES).buffer;
  lent.add(memory);
  return Buffer.from(memory, 0, bytes);
}

/** Leaves a piece to the collector, because several have it, and nobody knows who is the last. */
export function keepPiece({ buffer }: Buffer): void {
  lent.delete(buffer);
}

/** Gives a piece back, which nobody may use any more. It has no effect on memory that is not from here. */
export function givePiece({ buffer }: Buffer): void {
  if (buffer instanceof ArrayBuffer && lent.delete(buffer) && free.length < KEPT) free.push(buffer);
}
