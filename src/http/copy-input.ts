/** What a client types, on its way into a process. */
import type { Duplex, Writable } from 'node:stream';
import type { DetachScanner } from '../logs/detach-keys.js';

export interface InputEnds {
  /** The client typed the keys to detach. */
  readonly onDetach: () => void;
  /** The client has closed its sending side. */
  readonly onEnd: () => void;
}

/**
 * Copies from the client into the process, at the pace of the process, until one of them ends. A process that reads no
 * more is none of the client's business: what it types from then on is dropped, and it still gets the output.
 */
export function copyInput(client: Duplex, stdin: Writable, scanner: DetachScanner | undefined, { onDetach, onEnd }: InputEnds): void {
  const goOn = (): void => void client.resume();
  // Any number of clients may type into it.
  stdin.setMaxListeners(0);
  stdin.on('drain', goOn);
  stdin.once('close', goOn);
  // The process outlives many clients, and must not keep any of them.
  client.once('close', () => {
    stdin.off('drain', goOn);
    stdin.off('close', goOn);
  });
  client.on('data', (chunk: Buffer) => {
    const typed = scanner ? scanner.push(chunk) : { data: chunk, detached: false };
    if (typed.data.length > 0 && !stdin.destroyed && !stdin.write(typed.data)) client.pause();
    if (typed.detached) onDetach();
  });
  client.once('end', onEnd);
  client.resume();
}
