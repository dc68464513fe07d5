/** The addresses of a network: each family has none, one or several subnets. */
import { invalid } from '../errors/engine-error.js';
import { AddressPool } from './address-pool.js';
import type { Addresses, Lease } from './attachable-network.js';
import { contains, familyOf, type Family, type Subnet } from './subnet.js';

export interface AddressPlan {
  readonly subnet: Subnet;
  /** The host's own address on the network; '' for none. */
  readonly hostAddress: string;
  /** The address that containers send packets for others to; '' for none. */
  readonly gateway: string;
  /** The range that containers get addresses from. */
  readonly range: Subnet;
  /** Addresses that others use. */
  readonly reserved: readonly string[];
}

interface Space {
  readonly plan: AddressPlan;
  readonly pool: AddressPool;
}

export const NO_LEASE: Lease = { address: '', prefixLength: 0, gateway: '' };

export class AddressSpace implements Addresses {
  readonly #spaces: readonly Space[];

  constructor(plans: readonly AddressPlan[]) {
    this.#spaces = plans.map((plan) => {
      const pool = new AddressPool(plan.subnet, plan.range);
      for (const address of new Set([plan.hostAddress, plan.gateway, ...plan.reserved]))
        if (address !== '') pool.reserve(address);
      return { plan, pool };
    });
  }

  needsMac(): boolean {
    return false;
  }

  /**
   * Takes the wanted address, or any, if possible the one that the container `owner` had last; of several subnets the
   * first that has a free one. Throws unavailable, invalid or forbidden.
   */
  lease(family: Family, wanted: string | undefined, _mac?: string, owner?: string): Lease {
    const spaces = this.#spaces.filter(({ plan }) => plan.subnet.family === family);
    const [first] = spaces;
    if (!first && wanted !== undefined)
      throw invalid(`invalid endpoint settings:\nno configured subnet or ip-range contain the IP address ${wanted}`, {
        code: 'ADDRESS_OUTSIDE',
      });
    if (!first) return NO_LEASE;
    const space =
      wanted === undefined
        ? (spaces.find(({ pool }) => spaces.length === 1 || pool.hasFree) ?? first)
        : (spaces.find(({ plan }) => contains(plan.subnet, wanted)) ?? first);
    if (wanted !== undefined) space.pool.reserve(wanted, owner);
    const { subnet, gateway } = space.plan;
    return { address: wanted ?? space.pool.allocate(owner), prefixLength: subnet.prefixLength, gateway };
  }

  adopt(family: Family, address: string, owner: string): void {
    this.lease(family, address, undefined, owner);
  }

  /** Takes an address back; '' is none. */
  release(address: string): void {
    if (address === '') return;
    this.#spaces
      .find(({ plan }) => plan.subnet.family === familyOf(address) && contains(plan.subnet, address))
      ?.pool.release(address);
  }
}
