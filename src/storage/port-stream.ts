/** A stream whose bytes a worker task makes; the task waits while nobody reads. */
import { Readable } from 'node:stream';
import type { MessagePort } from 'node:worker_threads';
import { bufferDied } from '../workers/buffer-collector.js';

/** So many chunks may be on their way at once. */
const WINDOW = 4;

/**
 * The task gets the other end of the port, and sends a chunk (Uint8Array) for each message, null at the end. Destroying
 * the stream closes the port; a task that fails must destroy the stream.
 */
export function portStream(near: MessagePort): Readable {
  let credit = WINDOW;
  const stream = new Readable({
    highWaterMark: 1,
    read() {
      for (; credit > 0; credit--) near.postMessage(0, []);
    },
    destroy(error, callback) {
      near.close();
      callback(error);
    },
  });
  near.on('message', (chunk: Uint8Array | null) => {
    if (stream.destroyed) return;
    if (chunk === null) {
      stream.push(null);
      return;
    }
    credit++;
    bufferDied(chunk.byteLength);
    stream.push(Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength));
  });
  return stream;
}
