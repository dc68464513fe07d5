/**
 * Addresses of one subnet. The search goes on from the last one given out, so that an address is not used again soon
 * after its container left: peers still have the old one in their caches.
 */
import { conflict, invalid, unavailable } from '../errors/engine-error.js';
import { contains, formatSubnet, sizeOf, toAddress, toNumber, type Subnet } from './subnet.js';

export class AddressPool {
  readonly #taken = new Set<number>();
  readonly #first: number;
  readonly #last: number;
  #next: number;

  /** `range` limits what is given out to a part of the subnet. */
  constructor(
    readonly subnet: Subnet,
    range: Subnet = subnet,
  ) {
    const end = subnet.base + sizeOf(subnet) - 1;
    // Network and broadcast addresses are nobody's, except in /31 and /32.
    const edge = sizeOf(subnet) > 2 ? 1 : 0;
    this.#first = Math.max(range.base, subnet.base + edge);
    this.#last = Math.min(range.base + sizeOf(range) - 1, end - edge);
    this.#next = this.#first;
  }

  /** The next free address. Throws unavailable when there is none. */
  allocate(): string {
    const count = this.#last - this.#first + 1;
    for (let tries = 0; tries < count; tries++) {
      const candidate = this.#next;
      this.#next = candidate >= this.#last ? this.#first : candidate + 1;
      if (this.#taken.has(candidate)) continue;
      this.#taken.add(candidate);
      return toAddress(candidate);
    }
    throw unavailable(`no available IPv4 addresses on this network's address pools: ${formatSubnet(this.subnet)}`, { code: 'NO_ADDRESS' });
  }

  /** Takes a particular address. Throws invalid when it is outside, conflict when it is taken. */
  reserve(address: string): void {
    const value = toNumber(address);
    if (!contains(this.subnet, value)) throw invalid(`address ${address} is not in the subnet ${formatSubnet(this.subnet)}`);
    if (this.#taken.has(value)) throw conflict(`Address already in use: ${address}`, { code: 'ADDRESS_IN_USE' });
    this.#taken.add(value);
  }

  release(address: string): void {
    this.#taken.delete(toNumber(address));
  }
}
