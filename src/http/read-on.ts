/** Reads the rest of a request's body before a reply that did not wait for it is finished. */
import type { Socket } from 'node:net';
import type { BodyFraming } from '../text/body-framing.js';

/**
 * Servers in Go use the same limit: a client that has sent all is not disturbed by the reply, and one with more to send
 * stops.
 */
const READ_ON_BYTES = 256 * 1024;
/** The wait for a client that sends nothing more before it has the reply is this long. */
const READ_ON_MS = 500;

/**
 * Reads and drops the bytes that a client still sends, up to the end of the body or the limit, then calls back once.
 */
export function readOn(socket: Socket, body: BodyFraming, then: () => void): void {
  let left = READ_ON_BYTES;
  const finish = (): void => {
    clearTimeout(timer);
    socket.off('data', take).off('end', finish).off('close', finish);
    then();
  };
  const take = (piece: Buffer): void => {
    left -= piece.length;
    if (left <= 0 || isEndOf(body, piece)) finish();
  };
  const timer = setTimeout(finish, READ_ON_MS);
  socket.on('data', take).once('end', finish).once('close', finish);
  socket.resume();
}

/** Returns true when the body ends with this piece, or when there is none. */
function isEndOf(body: BodyFraming, piece: Buffer): boolean {
  try {
    body.extract(piece.subarray(0, Math.min(piece.length, body.wantedBytes)));
    return body.isComplete;
  } catch {
    // The reply is decided already, so a malformed body changes nothing.
    return true;
  }
}
