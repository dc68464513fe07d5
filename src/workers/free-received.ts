/**
 * Frees what a connection has received as soon as it is parsed. Node's client copies the body out of it, so there are
 * two buffers for each chunk, of which the reader of a response knows one.
 */
import type { IncomingMessage } from 'node:http';
import { freeBuffer } from '../sys/process/free-buffer.js';

/** Call it before the body is read. */
export function freeReceived(response: IncomingMessage): void {
  const { socket } = response;
  const free = (received: Buffer): void => void freeBuffer(received);
  const end = (): void => void socket.off('data', free);
  // The parser listens already, and is done with the bytes when it returns. For the next response, which may come over
  // the same connection, it would listen later than this.
  socket.on('data', free);
  response.once('end', end).once('close', end);
}
