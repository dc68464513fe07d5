/** What is done about a request's body before a reply that did not wait for it. */
import type { Socket } from 'node:net';
import type { BodyFraming } from '../text/body-framing.js';

/** As the servers of Go do: a client that has sent all is not disturbed by the reply, and one with more to send stops. */
const READ_ON_BYTES = 256 * 1024;
/** For a client that sends nothing more before it has the reply. */
const READ_ON_MS = 500;

/** Reads and forgets what a client still sends, to the end of the body or within bounds, then calls back once. */
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

/** True when the body ends with this piece, or is none. */
function isEndOf(body: BodyFraming, piece: Buffer): boolean {
  try {
    body.extract(piece.subarray(0, Math.min(piece.length, body.wantedBytes)));
    return body.isComplete;
  } catch {
    // The reply is decided already.
    return true;
  }
}
