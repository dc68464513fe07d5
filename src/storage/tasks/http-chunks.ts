/** Writes a body of HTTP/1.1 from the thread that makes it straight to its reader's socket. */
import { Socket } from 'node:net';
import type { MessagePort } from 'node:worker_threads';
import { duplicateFd } from '../../sys/files/fd.js';
import { makeRoom } from '../../sys/net/socket-progress.js';
import { newChunk, type ChunkMemory } from '../tar/archive-tar.js';

const CRLF = Buffer.from('\r\n');
/** With the kernel's usual 208 KiB no piece fits, and each wakes its writer and its reader several times. */
const ROOM_BYTES = 1 << 20;

/**
 * Writes each piece as a chunk (RFC 9112, 7.1), at the speed of the reader and without the last chunk. The memory of
 * pieces is used again. Closing the port ends it. @throws Error when the socket fails.
 */
export async function writeHttpChunks(
  fd: number,
  pieces: (memory: ChunkMemory) => Iterable<Buffer>,
  port: MessagePort,
): Promise<void> {
  makeRoom(fd, ROOM_BYTES);
  const socket = new Socket({ fd: duplicateFd(fd), readable: false, writable: true });
  // The write under way fails with this error.
  socket.on('error', () => undefined);
  port.once('close', () => socket.destroy());
  const free: Buffer[] = [];
  const write = (piece: Buffer): Promise<void> =>
    new Promise((resolve, reject) => {
      socket.cork();
      socket.write(Buffer.from(`${piece.length.toString(16)}\r\n`));
      socket.write(piece);
      socket.write(CRLF, (error) => {
        free.push(Buffer.from(piece.buffer));
        if (error) reject(error);
        else resolve();
      });
      socket.uncork();
    });
  try {
    let written = Promise.resolve();
    for (const piece of pieces(() => free.pop() ?? newChunk())) {
      await written;
      written = write(piece);
    }
    await written;
  } finally {
    // The socket is not ended, because that would end the connection.
    socket.destroy();
  }
}
