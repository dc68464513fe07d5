/** Chooses subnets for networks that name none. */
import { unavailable } from '../errors/engine-error.js';
import type { Netlink } from '../sys/netlink/route-netlink.js';
import { overlaps, parseSubnet, sizeOf, subnetAround, toAddress, type Family, type Subnet } from './subnet.js';

export interface PoolOption {
  readonly base: string;
  /** Prefix length of the networks that are cut from the pool. */
  readonly size: number;
}

const DEFAULT_POOLS: readonly PoolOption[] = [
  { base: '172.17.0.0/16', size: 16 },
  { base: '172.18.0.0/16', size: 16 },
  { base: '172.19.0.0/16', size: 16 },
  { base: '172.20.0.0/14', size: 16 },
  { base: '172.24.0.0/14', size: 16 },
  { base: '172.28.0.0/14', size: 16 },
  { base: '192.168.0.0/16', size: 20 },
];

/**
 * Returns a subnet of this family for a network that names none. Pools of the other family do not matter: without a
 * pool of this family, IPv4 networks get a block of the built-in pools, and IPv6 networks get the block that is made
 * from their ID.
 * @throws EngineError unavailable when all blocks of the pools are in use.
 */
export function chooseSubnet(
  family: Family,
  pools: readonly PoolOption[],
  taken: readonly Subnet[],
  networkId: string,
): Subnet {
  const parsed = pools.map(({ base, size }) => ({ pool: parseSubnet(base, 'default-address-pool'), size }));
  const own = parsed.filter(({ pool }) => pool.family === family);
  if (own.length === 0) return family === 6 ? localSubnet(networkId) : chooseSubnet(4, DEFAULT_POOLS, taken, networkId);
  for (const { pool, size } of own) {
    const found = firstFree(pool, size, taken);
    if (found) return found;
  }
  throw unavailable('all predefined address pools have been fully subnetted', { code: 'NO_SUBNET' });
}

function firstFree(pool: Subnet, prefixLength: number, taken: readonly Subnet[]): Subnet | undefined {
  const { family } = pool;
  const step = sizeOf({ ...pool, prefixLength });
  for (let base = pool.base; base < pool.base + sizeOf(pool);) {
    const subnet: Subnet = { family, base, prefixLength };
    const other = taken.find((each) => overlaps(each, subnet));
    if (!other) return subnet;
    // An IPv6 pool has too many blocks to try each one that lies in a large subnet of somebody else, so such a subnet
    // is skipped as a whole.
    const end = other.base + sizeOf(other);
    base = end > base + step ? ((end + step - 1n) / step) * step : base + step;
  }
  return undefined;
}

/** Returns the unique local subnet that belongs to a network's ID (RFC 4193: 40 random bits). */
export function localSubnet(networkId: string): Subnet {
  const groups = [`fd${networkId.slice(0, 2)}`, networkId.slice(2, 6), networkId.slice(6, 10)];
  return parseSubnet(`${groups.join(':')}::/64`, 'subnet', 6);
}

export function firstAddress(subnet: Subnet): string {
  return toAddress(subnet.family, subnet.base + 1n);
}

export interface HostSubnets {
  readonly addresses: readonly Subnet[];
  readonly routes: readonly Subnet[];
}

/** Returns the subnets of the host's addresses and routes, except those over the link `except`. */
export async function hostSubnets(netlink: Netlink, except?: number): Promise<HostSubnets> {
  const [addresses, routes] = await Promise.all([netlink.addresses(), netlink.routes()]);
  return {
    addresses: addresses
      .filter(({ linkIndex }) => linkIndex !== except)
      .map(({ ip, prefixLength }) => subnetAround(ip, prefixLength)),
    routes: routes
      .filter(({ linkIndex }) => linkIndex !== except)
      .map(({ destination }) => subnetAround(destination.ip, destination.prefixLength)),
  };
}
