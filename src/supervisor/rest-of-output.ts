/**
 * Reads what a process that has ended left in its FIFOs. The streams of the event loop are of no use then: nobody is
 * told of an end whose writer was gone before the FIFO was opened.
 */
import { closeSync, constants, openSync, readSync } from 'node:fs';
import { onceReadable } from '../sys/files/fd.js';

const PIECE_BYTES = 64 << 10;

/**
 * Yields what is in a FIFO, piece by piece, until its last writer is gone. A shim may still have more than a pipe holds
 * to write; it is waited for up to a limit each time. A FIFO that is gone yields nothing.
 */
export async function* readRest(path: string, limitMs: number): AsyncGenerator<Buffer> {
  const fd = openIfPresent(path);
  if (fd === undefined) return;
  try {
    for (;;) {
      const piece = readPiece(fd);
      if (piece === 'nothing yet') {
        if (!(await isReadable(fd, limitMs))) return;
      } else if (piece.length === 0) return;
      else yield piece;
    }
  } finally {
    closeSync(fd);
  }
}

function openIfPresent(path: string): number | undefined {
  if (path === '') return undefined;
  try {
    return openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

function readPiece(fd: number): Buffer | 'nothing yet' {
  const buffer = Buffer.allocUnsafe(PIECE_BYTES);
  try {
    // It does not block, and takes from memory what is there.
    return buffer.subarray(0, readSync(fd, buffer, 0, PIECE_BYTES, null));
  } catch (error) {
    if (codeOf(error) === 'EAGAIN') return 'nothing yet';
    throw error;
  }
}

/** Resolves with false when nothing has come within the limit. */
function isReadable(fd: number, limitMs: number): Promise<boolean> {
  return new Promise((resolve) => {
    const timer = setTimeout(() => {
      watch.cancel();
      resolve(false);
    }, limitMs);
    const watch = onceReadable(fd, () => {
      clearTimeout(timer);
      resolve(true);
    });
  });
}

function codeOf(error: unknown): unknown {
  return error instanceof Error && 'code' in error ? error.code : undefined;
}
