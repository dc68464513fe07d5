/**
 * Addresses of one subnet. The search goes on from the last address given out, so that an address is not used again
 * soon after its container left: peers still have the old container in their caches. For the same reason a container
 * that comes back gets the address that it had, if nobody else has it now.
 */
import { type EngineError, forbidden, invalid, unavailable } from '../errors/engine-error.js';
import { contains, formatSubnet, sizeOf, toAddress, toNumber, type Subnet } from './subnet.js';

/** So many containers are remembered with their last address. */
const REMEMBERED = 4096;

export class AddressPool {
  readonly #taken = new Set<bigint>();
  readonly #first: bigint;
  readonly #last: bigint;
  #next: bigint;
  /** The last address of each owner; who got one most recently comes last. */
  readonly #formerly = new Map<string, bigint>();

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

  /** Returns the last address of `owner` or else the next free one. Throws unavailable when there is none. */
  allocate(owner = ''): string {
    const former = this.#formerly.get(owner);
    if (former !== undefined && !this.#taken.has(former)) return this.#take(former, owner);
    // Only taken addresses are passed over, so the search is as long as they are many, whatever the size of the subnet.
    const count = this.#last - this.#first + 1n;
    for (let tries = 0n; tries < count; tries++) {
      const candidate = this.#next;
      this.#next = candidate >= this.#last ? this.#first : candidate + 1n;
      if (this.#taken.has(candidate)) continue;
      return this.#take(candidate, owner);
    }
    throw noAddress(this.subnet);
  }

  /** Takes a particular address. Throws invalid when it is outside, forbidden when it is taken. */
  reserve(address: string, owner = ''): void {
    if (!contains(this.subnet, address))
      throw invalid(`invalid endpoint settings:\nno configured subnet or ip-range contain the IP address ${address}`, {
        code: 'ADDRESS_OUTSIDE',
      });
    const value = toNumber(address);
    if (this.#taken.has(value)) throw forbidden('Address already in use', { code: 'ADDRESS_IN_USE' });
    this.#take(value, owner);
  }

  #take(value: bigint, owner: string): string {
    this.#taken.add(value);
    if (owner !== '') {
      this.#formerly.delete(owner);
      this.#formerly.set(owner, value);
      const [oldest] = this.#formerly.keys();
      if (this.#formerly.size > REMEMBERED && oldest !== undefined) this.#formerly.delete(oldest);
    }
    return toAddress(this.subnet.family, value);
  }

  release(address: string): void {
    this.#taken.delete(toNumber(address));
  }
}

export function noAddress(subnet: Subnet): EngineError {
  return unavailable(
    `no available IPv${subnet.family} addresses on this network's address pools: ${formatSubnet(subnet)}`,
    { code: 'NO_ADDRESS' },
  );
}
