/**
 * The end of a connection whose last reply is out: our side ends, and the client has a while to end its own. It may
 * still be sending: if bytes of it were left unread, it would get a reset, perhaps in the place of the reply.
 */
import { closeFd, endSending, receiveFromSocket, watchReadable } from '../sys/files/fd.js';

/** After the reply a client has this long to close its side: without a sign of life, and altogether. */
export const LINGER_MS = 5_000;
export const LONGEST_LINGER_MS = 60_000;
/**
 * A client may still send this much after the reply. Many clients look for a reply only when they have sent all, and
 * fail when they cannot send it.
 */
export const LINGER_BYTES = 256 * 1024 * 1024;

/** All connections read into this, since nothing that comes means anything. */
const dropped = Buffer.allocUnsafeSlow(64 * 1024);

/** Ends a connection. The descriptor is given away; a socket object for it would cost as much as a short reply. */
export function lingerOn(fd: number): void {
  endSending(fd);
  const last = performance.now() + LONGEST_LINGER_MS;
  let bytes = 0;
  const finish = (): void => {
    clearTimeout(timer);
    watch.close();
    closeFd(fd);
  };
  const timer = setTimeout(finish, LINGER_MS);
  const watch = watchReadable(fd, () => {
    const count = receiveOrEnd(fd);
    if (count === undefined) return;
    bytes += count;
    if (count === 0 || bytes > LINGER_BYTES || performance.now() > last) finish();
    else timer.refresh();
  });
}

/** As `receiveFromSocket`; a connection that has failed has ended. */
function receiveOrEnd(fd: number): number | undefined {
  try {
    return receiveFromSocket(fd, dropped, dropped.length);
  } catch {
    return 0;
  }
}
