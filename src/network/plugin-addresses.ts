/** Subnets and addresses that another process manages. */
import { forbidden, isEngineError, unavailable } from '../errors/engine-error.js';
import type { AddressPlugin, NetworkPlugins } from '../ports/network-plugin.js';
import type { NetworkRequest, NetworkSubnet, NetworkSummary } from '../ports/network.js';
import type { Addresses, Lease } from './attachable-network.js';
import { type PluginDebts, unlessRefused } from './plugin-debts.js';
import { contains, type Family, overlaps, parseSubnet, type Subnet } from './subnet.js';

/** A subnet as its manager knows it. */
export interface LeasedPool {
  readonly id: string;
  readonly subnet: NetworkSubnet;
}

const NO_SUBNET: NetworkSubnet = { subnet: '', gateway: '', ipRange: '', auxiliaryAddresses: {} };
const NO_LEASE: Lease = { address: '', prefixLength: 0, gateway: '' };

/** Asks for all subnets of a network and their gateways; if that fails, all are given back. */
export async function leasePools(
  plugin: AddressPlugin,
  { subnets, enableIpv4, enableIpv6, ipam }: NetworkRequest,
): Promise<LeasedPool[]> {
  const space = await plugin.addressSpace();
  const leased: LeasedPool[] = [];
  try {
    for (const family of [4, 6] as const) {
      if (family === 4 ? !enableIpv4 : !enableIpv6) continue;
      const given = subnets.filter(({ subnet }) => subnet !== '' && parseSubnet(subnet, 'subnet').family === family);
      for (const wanted of given.length > 0 ? given : [NO_SUBNET]) {
        const { subnet, ipRange, auxiliaryAddresses } = wanted;
        const pool = await plugin.requestPool({
          addressSpace: space,
          subnet,
          range: ipRange,
          options: ipam.options ?? {},
          isIpv6: family === 6,
        });
        leased.push({ id: pool.id, subnet: { ...wanted, subnet: pool.subnet, gateway: '' } });
        const gateway =
          pool.gateway !== '' && wanted.gateway === ''
            ? pool.gateway
            : plain(await plugin.requestAddress(pool.id, wanted.gateway, { gateway: true }));
        leased[leased.length - 1] = { id: pool.id, subnet: { ...wanted, subnet: pool.subnet, gateway } };
        for (const address of Object.values(auxiliaryAddresses)) await plugin.requestAddress(pool.id, address, {});
      }
    }
    return leased;
  } catch (error) {
    await releasePools(plugin, leased);
    throw error;
  }
}

/** Gives subnets back, and the network's own addresses in them. */
export async function releasePools(plugin: AddressPlugin, pools: readonly LeasedPool[]): Promise<void> {
  for (const { id, subnet } of pools) {
    for (const address of [subnet.gateway, ...Object.values(subnet.auxiliaryAddresses)])
      if (address !== '') await plugin.releaseAddress(id, address).catch(unlessRefused);
    await plugin.releasePool(id).catch(unlessRefused);
  }
}

/** Checks subnets. @throws EngineError forbidden for one that another network has. */
export function checkPools(pools: readonly LeasedPool[], others: readonly Subnet[]): void {
  for (const { subnet } of pools) {
    if (others.some((other) => overlaps(other, parseSubnet(subnet.subnet, 'subnet'))))
      throw forbidden('invalid pool request: Pool overlaps with other one on this address space', {
        code: 'SUBNET_IN_USE',
      });
  }
}

interface Space {
  readonly subnet: Subnet;
  readonly gateway: string;
  id: string;
}

export class PluginAddresses implements Addresses {
  readonly #spaces: readonly Space[];
  #prepared: Promise<{ readonly plugin: AddressPlugin; readonly requiresMac: boolean }> | undefined;

  /** Makes the addresses of a network. `isFresh`: the pools were asked for in this run of the daemon. */
  constructor(
    private readonly summary: NetworkSummary,
    private readonly pools: readonly LeasedPool[],
    private readonly plugins: NetworkPlugins,
    private readonly debts: PluginDebts,
    private readonly isFresh: boolean,
  ) {
    this.#spaces = pools.map(({ id, subnet }) => ({
      id,
      subnet: parseSubnet(subnet.subnet, 'subnet'),
      gateway: subnet.gateway,
    }));
  }

  async needsMac(): Promise<boolean> {
    return (await this.#prepare()).requiresMac;
  }

  async lease(family: Family, wanted: string | undefined, macAddress?: string): Promise<Lease> {
    const spaces = this.#spaces.filter(
      ({ subnet }) => subnet.family === family && (wanted === undefined || contains(subnet, wanted)),
    );
    if (spaces.length === 0 && wanted === undefined) return NO_LEASE;
    const { plugin, requiresMac } = await this.#prepare();
    let failure: unknown = unavailable(`no configured subnet or ip-range contain the IP address ${wanted}`, {
      code: 'ADDRESS_OUTSIDE',
    });
    for (const { id, gateway } of spaces) {
      try {
        const given = await plugin.requestAddress(
          id,
          wanted ?? '',
          requiresMac && macAddress !== undefined ? { macAddress } : {},
        );
        const lease = { address: plain(given), prefixLength: Number(given.split('/')[1]), gateway };
        await this.debts.add(this.#debt(id, lease.address));
        return lease;
      } catch (error) {
        failure = error;
      }
    }
    throw failure;
  }

  async adopt(_family: Family, address: string): Promise<void> {
    const space = this.#spaceOf(address);
    if (space) this.debts.claim(this.#debt(space.id, address));
    await this.#prepare();
  }

  release(address: string): void {
    const space = this.#spaceOf(address);
    if (space) void this.debts.pay(this.#debt(space.id, address));
  }

  #spaceOf(address: string): Space | undefined {
    return address === '' ? undefined : this.#spaces.find(({ subnet }) => contains(subnet, address));
  }

  #debt(poolId: string, address: string) {
    return { kind: 'address', driver: this.summary.ipam.driver, poolId, address } as const;
  }

  /** Prepares the manager, once in a run of the daemon; a failure is tried again. */
  #prepare(): Promise<{ readonly plugin: AddressPlugin; readonly requiresMac: boolean }> {
    this.#prepared ??= this.#open().catch((error: unknown) => {
      this.#prepared = undefined;
      throw error;
    });
    return this.#prepared;
  }

  async #open(): Promise<{ readonly plugin: AddressPlugin; readonly requiresMac: boolean }> {
    const plugin = await this.plugins.addresses(this.summary.ipam.driver);
    const { requiresMac, requiresReplay } = await plugin.capabilities();
    if (requiresReplay && !this.isFresh) await this.#replay(plugin);
    return { plugin, requiresMac };
  }

  /** Tells a manager that keeps nothing what it gave. A manager that refuses has not forgotten it. */
  async #replay(plugin: AddressPlugin): Promise<void> {
    const addressSpace = await plugin.addressSpace();
    for (const [index, { subnet }] of this.pools.entries()) {
      const space = this.#spaces[index];
      if (!space) continue;
      try {
        const pool = await plugin.requestPool({
          addressSpace,
          subnet: subnet.subnet,
          range: subnet.ipRange,
          options: this.summary.ipam.options ?? {},
          isIpv6: space.subnet.family === 6,
        });
        space.id = pool.id;
        for (const address of [subnet.gateway, ...Object.values(subnet.auxiliaryAddresses)])
          if (address !== '')
            await plugin.requestAddress(pool.id, address, address === subnet.gateway ? { gateway: true } : {});
      } catch (error) {
        if (isEngineError(error)) unlessRefused(error);
        else throw error;
      }
    }
  }
}

/** Returns an address without its prefix length. */
function plain(cidr: string): string {
  return cidr.split('/')[0] ?? '';
}
