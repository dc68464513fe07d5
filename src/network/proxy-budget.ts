/**
 * The descriptors that the userland proxy may take for connections of all ports. Whoever reaches a published port opens
 * as many connections as they like, and the daemon needs descriptors for its clients, containers and registries.
 */
import { openFileLimit } from '../sys/process/limits.js';

const MOST = 65_536;
/** The part of all descriptors of the daemon. */
const PART = 1 / 2;

export class ProxyBudget {
  #taken = 0;
  #most: number | undefined;

  /** @param most tells how many there are; asked once, when the first are taken. */
  constructor(private readonly most: () => number) {}

  /** Returns false when there are not so many left. */
  take(count: number): boolean {
    this.#most ??= this.most();
    if (this.#taken + count > this.#most) return false;
    this.#taken += count;
    return true;
  }

  /** Takes them for connections that are there already. */
  takeMore(count: number): void {
    this.#taken += count;
  }

  giveBack(count: number): void {
    this.#taken -= count;
  }
}

export const proxyBudget = new ProxyBudget(() => Math.min(MOST, Math.floor(openFileLimit() * PART)));
