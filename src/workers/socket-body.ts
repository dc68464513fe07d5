/** Reads the body of a request from its socket, in the thread that wants it. */
import { setImmediate as nextTurn } from 'node:timers/promises';
import { cancelled, isEngineError, type EngineError } from '../errors/engine-error.js';
import type { SocketBody } from '../ports/archives.js';
import { receiveFromSocket, watchReadable } from '../sys/files/fd.js';
import { freeBuffer } from '../sys/process/free-buffer.js';
import { ChunkedBody, SizedBody } from '../text/body-framing.js';

/**
 * Files are written faster in large pieces, but while a larger one is written the client fills the socket and has to
 * wait.
 */
const PIECE_BYTES = 128 * 1024;
/** After so many pieces other work of this thread gets its turn, because a client may be faster than it. */
const PIECES_PER_TURN = 64;

/**
 * Returns the bytes in large pieces, each of which is lent until the next one is asked for.
 * @throws EngineError cancelled when the client leaves before the end, invalid for chunks that are none.
 */
export async function* readSocketBody({ fd, length }: SocketBody): AsyncGenerator<Buffer> {
  const framing = length === undefined ? new ChunkedBody() : new SizedBody(length);
  const buffer = Buffer.allocUnsafeSlow(2 * PIECE_BYTES);
  let filledBytes = 0;
  let wake = (): void => undefined;
  const watch = watchReadable(fd, () => {
    watch.pause();
    wake();
  });
  watch.pause();
  try {
    for (let pieces = 0; !framing.isComplete;) {
      const free = buffer.subarray(filledBytes);
      const count = receive(fd, free, Math.min(free.length, framing.wantedBytes));
      if (count === undefined) {
        const readable = new Promise<void>((resolve) => (wake = resolve));
        watch.resume();
        await readable;
        continue;
      }
      if (count === 0) throw clientLeft();
      filledBytes += framing.extract(free.subarray(0, count));
      if (filledBytes < PIECE_BYTES && !framing.isComplete) continue;
      yield buffer.subarray(0, filledBytes);
      filledBytes = 0;
      if (++pieces % PIECES_PER_TURN === 0) await nextTurn();
    }
  } finally {
    watch.close();
    freeBuffer(buffer);
  }
}

function receive(fd: number, buffer: Buffer, length: number): number | undefined {
  try {
    return receiveFromSocket(fd, buffer, length);
  } catch (error) {
    throw isEngineError(error) && error.code === 'ECONNRESET' ? clientLeft() : error;
  }
}

const clientLeft = (): EngineError => cancelled('the client closed the connection before the end of the request body');
