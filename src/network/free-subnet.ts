/** Choosing subnets for networks that name none. */
import { unavailable } from '../errors/engine-error.js';
import type { Netlink } from '../sys/route-netlink.js';
import { overlaps, parseSubnet, sizeOf, subnetAround, toAddress, type Subnet } from './subnet.js';

export interface PoolOption {
  readonly base: string;
  /** Prefix length of the networks cut from it. */
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

/** The first block of the pools that nothing in `taken` touches. Throws unavailable when all are. */
export function freeSubnet(pools: readonly PoolOption[], taken: readonly Subnet[]): Subnet {
  for (const { base, size } of pools.length > 0 ? pools : DEFAULT_POOLS) {
    const pool = parseSubnet(base, 'default-address-pool');
    if (pool.family === 6) continue;
    const step = sizeOf({ ...pool, prefixLength: size });
    for (let start = pool.base; start < pool.base + sizeOf(pool); start += step) {
      const subnet: Subnet = { family: 4, base: start, prefixLength: size };
      if (!taken.some((other) => overlaps(other, subnet))) return subnet;
    }
  }
  throw unavailable('all predefined address pools have been fully subnetted', { code: 'NO_SUBNET' });
}

/** The unique local subnet that belongs to a network's ID (RFC 4193: 40 random bits). */
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

/** Subnets of the host's addresses and routes, those over the link `except` left out. */
export async function hostSubnets(netlink: Netlink, except?: number): Promise<HostSubnets> {
  const [addresses, routes] = await Promise.all([netlink.addresses(), netlink.routes()]);
  return {
    addresses: addresses.filter(({ linkIndex }) => linkIndex !== except).map(({ ip, prefixLength }) => subnetAround(ip, prefixLength)),
    routes: routes.filter(({ linkIndex }) => linkIndex !== except).map(({ destination }) => subnetAround(destination.ip, destination.prefixLength)),
  };
}
