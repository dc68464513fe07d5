/**
 * Keeps sockets for the next process of the daemon. A copy of each lies with the service manager, in its descriptor
 * store (FDSTORE of sd_notify(3)), which gives all of them to the process that it starts next.
 */
import { createHash } from 'node:crypto';
import type { KeptSockets } from './ports/kept-sockets.js';
import { closeFd } from './sys/files/fd.js';

/** Descriptors with such names are ours. What follows is a digest, because names may hold neither colons nor much. */
const PREFIX = 'engined.kept.';
const DIGEST_LENGTH = 24;

export function isKeptName(name: string): boolean {
  return name.startsWith(PREFIX);
}

/** Tells the service manager something, together with descriptors. Returns false when it cannot be told. */
export type Tell = (text: string, fds?: readonly number[]) => boolean;

export class SocketStore implements KeptSockets {
  /** Sockets of the earlier process that nobody has taken yet. They are in the store. */
  readonly #inherited: Map<string, number>;
  /** Names of the sockets that the service manager has. */
  readonly #stored: Set<string>;
  readonly #tell: Tell | undefined;

  /**
   * @param inherited what the service manager passed to this process.
   * @param tell absent when there is nobody who keeps descriptors.
   */
  constructor(inherited: ReadonlyMap<string, number>, tell: Tell | undefined) {
    this.#inherited = new Map(inherited);
    this.#stored = new Set(inherited.keys());
    this.#tell = tell;
  }

  take(name: string): number | undefined {
    const stored = storedName(name);
    const fd = this.#inherited.get(stored);
    this.#inherited.delete(stored);
    return fd;
  }

  keep(name: string, fd: number): void {
    const stored = storedName(name);
    if (this.#tell === undefined || this.#stored.has(stored)) return;
    if (this.#tell(`FDSTORE=1\nFDNAME=${stored}`, [fd])) this.#stored.add(stored);
  }

  drop(name: string): void {
    this.#remove(storedName(name));
  }

  outlives(name: string): boolean {
    return this.#stored.has(storedName(name));
  }

  /** Lets go of what the earlier process had and this one does not need, since the configuration has changed. */
  dropUntaken(): void {
    for (const [stored, fd] of this.#inherited) {
      closeFd(fd);
      this.#remove(stored);
    }
    this.#inherited.clear();
  }

  #remove(stored: string): void {
    if (this.#stored.delete(stored)) this.#tell?.(`FDSTOREREMOVE=1\nFDNAME=${stored}`);
  }
}

function storedName(name: string): string {
  return PREFIX + createHash('sha256').update(name).digest('hex').slice(0, DIGEST_LENGTH);
}
