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

/** Somebody who keeps descriptors for the next process. */
export interface Keeper {
  /** Tells it something, together with descriptors. Returns false when it cannot be told. */
  readonly tell: (text: string, fds?: readonly number[]) => boolean;
  /** How many descriptors it keeps. It closes further ones and says nothing to us. */
  readonly limit: number;
  /** Called when the limit keeps a socket out for the first time. */
  readonly onFull: () => void;
}

export class SocketStore implements KeptSockets {
  /** Sockets of the earlier process that nobody has taken yet. They are in the store. */
  readonly #inherited: Map<string, number>;
  /** Names of the sockets that the service manager has. */
  readonly #stored = new Set<string>();
  /** Sockets in use; their descriptors belong to others. */
  readonly #open = new Map<string, number>();
  #isHandedOver = false;
  #wasFull = false;
  readonly #keeper: Keeper | undefined;

  /**
   * @param inherited what the service manager or a predecessor passed to this process.
   * @param keeper absent when there is nobody who keeps descriptors.
   */
  constructor(inherited: ReadonlyMap<string, number>, keeper: Keeper | undefined) {
    this.#inherited = new Map(inherited);
    this.#keeper = keeper;
    if (keeper !== undefined) for (const stored of inherited.keys()) this.#stored.add(stored);
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
    if (!this.#stored.has(stored)) this.#store(stored, fd, '');
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
    else return this.#store(stored, fd, 'FDPOLL=0\n');
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

  /** Returns false when the socket is not kept, which `outlives` then says, too. */
  #store(stored: string, fd: number, options: string): boolean {
    if (this.#keeper === undefined) return false;
    if (this.#stored.size >= this.#keeper.limit) {
      if (!this.#wasFull) this.#keeper.onFull();
      this.#wasFull = true;
      return false;
    }
    if (!this.#keeper.tell(`FDSTORE=1\n${options}FDNAME=${stored}`, [fd])) return false;
    this.#stored.add(stored);
    return true;
  }

  #remove(stored: string): void {
    if (this.#stored.delete(stored)) this.#keeper?.tell(`FDSTOREREMOVE=1\nFDNAME=${stored}`);
  }
}

function storedName(name: string): string {
  return PREFIX + createHash('sha256').update(name).digest('hex').slice(0, DIGEST_LENGTH);
}
