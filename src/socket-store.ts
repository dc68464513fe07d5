/**
 * Keeps sockets for the next process of the daemon. A copy of each lies with the service manager, in its descriptor
 * store (FDSTORE of sd_notify(3)), which gives all of them to the process that it starts next. Without one a successor
 * gets them that this process has started (`engined upgrade`).
 */
import { createHash } from 'node:crypto';
import type { KeptSockets } from './ports/kept-sockets.js';
import { closeFd, duplicateFd } from './sys/files/fd.js';

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
  readonly #stored = new Set<string>();
  /** Sockets in use; their descriptors belong to others. */
  readonly #open = new Map<string, number>();
  #isHandedOver = false;
  readonly #tell: Tell | undefined;

  /**
   * @param inherited what the service manager or a predecessor passed to this process.
   * @param tell absent when there is nobody who keeps descriptors.
   */
  constructor(inherited: ReadonlyMap<string, number>, tell: Tell | undefined) {
    this.#inherited = new Map(inherited);
    this.#tell = tell;
    if (tell !== undefined) for (const stored of inherited.keys()) this.#stored.add(stored);
  }

  take(name: string): number | undefined {
    const stored = storedName(name);
    const fd = this.#inherited.get(stored);
    this.#inherited.delete(stored);
    return fd;
  }

  keep(name: string, fd: number): void {
    const stored = storedName(name);
    this.#open.set(stored, fd);
    if (this.#tell === undefined || this.#stored.has(stored)) return;
    if (this.#tell(`FDSTORE=1\nFDNAME=${stored}`, [fd])) this.#stored.add(stored);
  }

  drop(name: string): void {
    const stored = storedName(name);
    this.#open.delete(stored);
    this.#remove(stored);
  }

  pass(name: string, fd: number): boolean {
    const stored = storedName(name);
    if (this.#isHandedOver) this.#inherited.set(stored, duplicateFd(fd));
    // Those whose peer is gone stay, too: otherwise the next process would find a gap and not what comes after it.
    else if (this.#tell?.(`FDSTORE=1\nFDPOLL=0\nFDNAME=${stored}`, [fd]) === true) this.#stored.add(stored);
    else return false;
    return true;
  }

  outlives(name: string): boolean {
    return this.#isHandedOver || this.#stored.has(storedName(name));
  }

  /**
   * Prepares for a successor: all sockets stay open from now on, whoever closes them. It gets them; if it fails, this
   * process takes them itself again.
   */
  handOver(): void {
    this.#isHandedOver = true;
    for (const [stored, fd] of this.#open) this.#inherited.set(stored, duplicateFd(fd));
    this.#open.clear();
  }

  /** The sockets that nobody in this process uses, by their names. */
  get unused(): ReadonlyMap<string, number> {
    return this.#inherited;
  }

  /** Ends what `handOver` began, because there is no successor. */
  resume(): void {
    this.#isHandedOver = false;
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
