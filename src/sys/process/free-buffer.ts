/**
 * Frees the memory of buffers as soon as nobody uses them any more. V8 waits for a collection, until which there are
 * megabytes of them; and memory that is used again at once is still in the processor's caches.
 */
import { MessageChannel, type MessagePort } from 'node:worker_threads';

let nowhere: MessagePort | undefined;

/**
 * Frees a buffer, which has no bytes then. Nobody may use it, or another view of its memory, any more. Returns false
 * for one that is a part of its memory only.
 */
export function freeBuffer({ buffer, byteLength }: Uint8Array): boolean {
  if (!(buffer instanceof ArrayBuffer) || byteLength === 0 || byteLength !== buffer.byteLength) return false;
  nowhere ??= closedPort();
  try {
    // The memory moves into the message, and ends with it, as there is nobody to take it.
    nowhere.postMessage(null, [buffer]);
    return true;
  } catch {
    return false; // Some memory may not be moved, such as that of a library.
  }
}

/** Returns a port that drops all that it is given, at the next turn of the loop until it is closed. */
function closedPort(): MessagePort {
  const { port1, port2 } = new MessageChannel();
  port1.close();
  port2.unref();
  return port2;
}
