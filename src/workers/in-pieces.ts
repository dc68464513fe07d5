/**
 * Downloads one blob over several connections, for lines that limit each connection. Pieces are fetched side by side
 * and handed out in order, so that the reader notices nothing.
 */

/** One blob may have so many connections: more of them do not help when a server gives each connection only so much. */
export const MAX_CONNECTIONS = 4;
/** For each connection so many bytes of a blob are held in memory; they are lost when the daemon is killed. */
const PIECE_BYTES = 4 << 20;
/** A piece is handed out in chunks, of which each may become a hundred times its size. */
const CHUNK_BYTES = 64 << 10;

/** At most so many blobs are read in pieces at a time in this thread, which limits the memory. */
const MAX_READERS = 2;
let readers = 0;

/** False while so many blobs are read in pieces that one more would take too much memory. */
export function isRoomForPieces(): boolean {
  return readers < MAX_READERS;
}

/** Fetches the bytes from `from` up to, without, `to`. Rejects when `signal` aborts. */
export type FetchPiece = (from: number, to: number, signal: AbortSignal) => Promise<Buffer>;

/** Returns the bytes from `from` up to `to`. Ends with the first failure, after all bytes before it. */
export async function* inPieces(
  from: number,
  to: number,
  connections: number,
  fetch: FetchPiece,
): AsyncGenerator<Buffer> {
  const abort = new AbortController();
  readers++;
  const underWay: Promise<Buffer>[] = [];
  let next = from;
  const begin = (): void => {
    if (next >= to) return;
    const end = Math.min(next + PIECE_BYTES, to);
    const piece = fetch(next, end, abort.signal);
    piece.catch(() => undefined); // heard of in its turn
    underWay.push(piece);
    next = end;
  };
  try {
    for (let count = 0; count < connections; count++) begin();
    for (let piece = underWay.shift(); piece; piece = underWay.shift()) {
      const bytes = await piece;
      begin();
      for (let at = 0; at < bytes.length; at += CHUNK_BYTES) yield bytes.subarray(at, at + CHUNK_BYTES);
    }
  } finally {
    readers--;
    abort.abort();
  }
}

const LOOK_AFTER_MS = 2000;
/**
 * Connections may help if a transfer waits for the network at least this part of the time, while its thread is busy for
 * less than `BUSY_PART`.
 */
const WAITING_PART = 0.7;
const BUSY_PART = 0.5;
/** Bytes a second of a connection that is fast enough. */
const FAST = 32 << 20;

/** Tells whether more connections could help: the transfer waits for the network, and its thread is not too busy. */
export class Pace {
  readonly #begin = performance.now();
  readonly #utilization = performance.eventLoopUtilization();
  #idleSince = this.#begin;
  #lookAt = this.#begin + LOOK_AFTER_MS;
  #waitedMs = 0;
  #bytes = 0;

  arrived(bytes: number): void {
    this.#waitedMs += performance.now() - this.#idleSince;
    this.#bytes += bytes;
  }

  consumed(): void {
    this.#idleSince = performance.now();
  }

  /** Delays the next question for connections, because there are none now. */
  wait(): void {
    this.#lookAt = performance.now() + LOOK_AFTER_MS;
  }

  isSlow(): boolean {
    const elapsedMs = this.#idleSince - this.#begin;
    if (this.#idleSince < this.#lookAt) return false;
    if (this.#waitedMs < elapsedMs * WAITING_PART || this.#bytes > (FAST * elapsedMs) / 1000) return false;
    return performance.eventLoopUtilization(this.#utilization).utilization < BUSY_PART;
  }
}
