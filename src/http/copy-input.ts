/** Copies the input of a client to a process. */
import type { Duplex, Writable } from 'node:stream';
import type { DetachScanner } from '../logs/attach/detach-keys.js';

export interface InputEnds {
  /** The client typed the keys to detach. */
  readonly onDetach: () => void;
  /** The client has closed its sending side, or is gone. */
  readonly onEnd: () => void;
}

/**
 * Calls back once when nothing comes from a client any more. Clients without input end it with their request already. A
 * stream that has nothing to read tells its end at once, also while it is paused, and so before anybody listens.
 */
export function onceInputEnds(client: Duplex, callback: () => void): void {
  if (client.readableEnded || client.destroyed) return callback();
  const end = (): void => {
    client.off('end', end);
    client.off('close', end);
    callback();
  };
  client.on('end', end);
  // A client that is cut off sends no end of input; the process must not wait for it for ever.
  client.on('close', end);
}

/**
 * Copies from the client into the process, at the pace of the process, until one of them ends. If the process stops
 * reading, the client goes on: its further input is dropped, and it still gets the output.
 */
export function copyInput(
  client: Duplex,
  stdin: Writable,
  scanner: DetachScanner | undefined,
  { onDetach, onEnd }: InputEnds,
): void {
  const goOn = (): void => void client.resume();
  // Any number of clients may type into the process.
  stdin.setMaxListeners(0);
  stdin.on('drain', goOn);
  stdin.once('close', goOn);
  let isDetached = false;
  client.on('data', (chunk: Buffer) => {
    if (isDetached) return;
    const typed = scanner ? scanner.push(chunk) : { data: chunk, detached: false };
    if (typed.data.length > 0 && !stdin.destroyed && !stdin.write(typed.data)) client.pause();
    if (!typed.detached) return;
    isDetached = true;
    client.resume();
    onDetach();
  });
  onceInputEnds(client, () => {
    // The process outlives many clients, and must not keep any of them in memory.
    stdin.off('drain', goOn);
    stdin.off('close', goOn);
    onEnd();
  });
  client.resume();
}
