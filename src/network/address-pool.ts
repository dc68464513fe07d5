/**
 * Addresses of one subnet. The search goes on from the last address given out, so that an address is not used again
 * soon after its container left: peers still have the old container in their caches.
 */
import { forbidden, invalid, unavailable } from '../errors/engine-error.js';
import { contains, formatSubnet, sizeOf, toAddress, toNumber, type Subnet } from './subnet.js';

export class AddressPool {
  readonly #taken = new Set<bigint>();
  readonly #first: bigint;
  readonly #last: bigint;
  #next: bigint;

  /** Makes the pool. `range` is the part of the subnet that addresses are given out from. */
  constructor(
    readonly subnet: Subnet,
    range: Subnet = subnet,
  ) {
    const size = sizeOf(subnet);
    const end = subnet.base + size - 1n;
    // Nobody gets the network and broadcast addresses, except in a tiny subnet, nor IPv6's router anycast address.
    const isTiny = size <= 2n;
    const lowest = subnet.base + (isTiny ? 0n : 1n);
    const highest = end - (isTiny || subnet.family === 6 ? 0n : 1n);
    for (const value of [subnet.base, end]) if (value < lowest || value > highest) this.#taken.add(value);
    const rangeEnd = range.base + sizeOf(range) - 1n;
    this.#first = range.base > lowest ? range.base : lowest;
    this.#last = rangeEnd < highest ? rangeEnd : highest;
    this.#next = this.#first;
  }

  get hasFree(): boolean {
    const used = [...this.#taken].filter((value) => value >= this.#first && value <= this.#last).length;
    return BigInt(used) < this.#last - this.#first + 1n;
  }

  /** Returns the next free address. Throws unavailable when there is none. */
  allocate(): string {
    // Only taken addresses are passed over, so the search is as long as they are many, whatever the size of the subnet.
    const count = this.#last - this.#first + 1n;
    for (let tries = 0n; tries < count; tries++) {
      const candidate = this.#next;
      this.#next = candidate >= this.#last ? this.#first : candidate + 1n;
      if (this.#taken.has(candidate)) continue;
      this.#taken.add(candidate);
      return toAddress(this.subnet.family, candidate);
    }
    throw unavailable(
      `no available IPv${this.subnet.family} addresses on this network's address pools: ${formatSubnet(this.subnet)}`,
      { code: 'NO_ADDRESS' },
    );
  }

  /** Takes a particular address. Throws invalid when it is outside, forbidden when it is taken. */
  reserve(address: string): void {
    if (!contains(this.subnet, address))
      throw invalid(`invalid endpoint settings:\nno configured subnet contains IP address ${address}`, {
        code: 'ADDRESS_OUTSIDE',
      });
    const value = toNumber(address);
    if (this.#taken.has(value)) throw forbidden('Address already in use', { code: 'ADDRESS_IN_USE' });
    this.#taken.add(value);
  }

  release(address: string): void {
    this.#taken.delete(toNumber(address));
  }
}
