/** Reads the body of a request from its socket, in the thread that wants it. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import type { SocketBody } from '../ports/archives.js';
import { awaitReadable, watchReadable } from '../sys/files/fd.js';
import { freeBuffer } from '../sys/process/free-buffer.js';
import { BodyReceiver } from './body-receiver.js';

/**
 * Files are written faster in large pieces, but while a larger one is written the client fills the socket and has to
 * wait.
 */
const PIECE_BYTES = 128 * 1024;
/** After so much other work of this thread gets its turn, because a client may be faster than it. */
const BYTES_PER_TURN = 8 << 20;
/** Until then this thread waits so long at most. */
const WAIT_MS = 2;
/**
 * Before it sleeps it looks so often, for some 30 µs: a client that is woken to send more mostly needs less, and to
 * sleep and to be woken costs both of them as much.
 */
const LOOKS = 48;

/** Gives memory to receive a body into. */
export interface PieceMemory {
  /**
   * Returns memory for the next piece, while that of the one before is lent no longer.
   * @param waits how often the client was waited for while the one before came.
   */
  next(waits: number): Buffer;
  /** A piece is handed on when it has so many bytes; else when its memory is full. */
  readonly enoughBytes: number;
  /**
   * The thread may wait a moment for a fast client, for nothing else goes on in it. When the client pauses for longer,
   * what has come is handed on, so that files have what it has sent.
   */
  readonly maySleep: boolean;
  /** Is told that the client pauses: nothing may be under way then, for the daemon may end before it goes on. */
  pause(): void;
}

/**
 * Returns the bytes in large pieces, each of which is lent until the next one is asked for.
 * @param given memory of the caller, who frees it. Default: a buffer.
 * @throws EngineError cancelled when the client leaves before the end, invalid for chunks that are none.
 */
export async function* readSocketBody(body: SocketBody, given?: PieceMemory): AsyncGenerator<Buffer> {
  const memory = given ?? oneBuffer();
  const receiver = new BodyReceiver(body);
  let buffer = memory.next(0);
  let filledBytes = 0;
  let waits = 0;
  let wake = (): void => undefined;
  const watch = watchReadable(body.fd, () => {
    watch.pause();
    wake();
  });
  watch.pause();
  let turn = newTurn();
  try {
    while (!receiver.isComplete) {
      const count = receiver.receive(buffer.subarray(filledBytes));
      const isPause = count === undefined;
      if (isPause) waits++;
      if (isPause && memory.maySleep && turn.waitFor(body.fd)) continue;
      filledBytes += count ?? 0;
      const isFull = filledBytes >= Math.min(memory.enoughBytes, buffer.length);
      if (isPause ? memory.maySleep && filledBytes > 0 : isFull || receiver.isComplete) {
        yield buffer.subarray(0, filledBytes);
        filledBytes = 0;
        buffer = memory.next(waits);
        waits = 0;
      }
      if (isPause) {
        memory.pause();
        const readable = new Promise<void>((resolve) => (wake = resolve));
        watch.resume();
        await readable;
        turn = newTurn();
      } else if (turn.isOver(count)) {
        await nextTurn();
        turn = newTurn();
      }
    }
  } finally {
    watch.close();
    if (!given) freeBuffer(buffer);
  }
}

interface Turn {
  /** Waits a moment for a client that is about as fast as this thread: to sleep in the loop costs more. */
  waitFor(fd: number): boolean;
  /** Whether others are to have theirs, after so many more bytes. */
  isOver(bytes: number): boolean;
}

function newTurn(): Turn {
  let [bytes, waitedMs] = [0, 0];
  return {
    waitFor(fd) {
      // One that has sent nothing in this turn is not that fast.
      if (bytes === 0 || waitedMs >= WAIT_MS) return false;
      const begin = performance.now();
      let isReadable = false;
      for (let looks = 0; looks < LOOKS && !isReadable; looks++) isReadable = awaitReadable(fd, 0);
      isReadable ||= awaitReadable(fd, 1);
      waitedMs += performance.now() - begin;
      return isReadable;
    },
    isOver: (more) => (bytes += more) >= BYTES_PER_TURN,
  };
}

function oneBuffer(): PieceMemory {
  const buffer = Buffer.allocUnsafeSlow(2 * PIECE_BYTES);
  return { next: () => buffer, enoughBytes: PIECE_BYTES, maySleep: false, pause: () => undefined };
}
