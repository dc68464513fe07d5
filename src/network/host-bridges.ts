/**
 * The bridges of the host. Those that the daemon makes are removed again; those that others have made are left as they
 * were when their network is removed. A bridge is known by its MAC address, because another bridge may have its name
 * later.
 */
import { randomBytes } from 'node:crypto';
import type { Link, LinkAddress, Netlink } from '../sys/netlink/route-netlink.js';
import { Bridge, type BridgePlan, hostAddresses } from './bridge.js';
import type { NetworkRecords } from './network-records.js';
import type { Ownership } from './open-options.js';

export class HostBridges {
  /** @param records returns the records on disk; it is called when a bridge is opened. */
  constructor(
    private readonly netlink: Netlink,
    private readonly records: () => NetworkRecords,
  ) {}

  /** Makes the bridge of a plan, or takes the one that exists. */
  async open(plan: BridgePlan, existing: Link | undefined, ownership: Ownership): Promise<Bridge> {
    const isForeign = isForeignBridge(existing, ownership);
    if (existing && isForeign) await this.#lend(existing, hostAddresses(plan));
    return Bridge.open(plan, this.netlink, existing, { isForeign, mac: ownership.mac ?? randomMac() });
  }

  /** Removes what the daemon made for these: its own links, or addresses that it gave to links of others. */
  async close(bridges: readonly Bridge[]): Promise<void> {
    await this.netlink.deleteLinks(bridges.flatMap(({ plan, isForeign }) => (isForeign ? [] : [plan.link])));
    for (const { plan, isForeign } of bridges) if (isForeign) await this.#takeBack(plan.link);
  }

  /** Notes the addresses for somebody else's bridge before it gets them; addresses of an earlier run may be removed. */
  async #lend(link: Link, wanted: readonly LinkAddress[]): Promise<void> {
    const before = this.records().lent(link);
    const there = (await this.netlink.addresses()).filter(({ linkIndex }) => linkIndex === link.index);
    const isOf = (list: readonly LinkAddress[], address: LinkAddress): boolean =>
      list.some((each) => isSame(each, address));
    for (const old of there)
      if (isOf(before, old) && !isOf(wanted, old)) await this.netlink.removeAddress(link.index, old);
    await this.records().lend(
      link,
      wanted.filter((address) => isOf(before, address) || !isOf(there, address)),
    );
  }

  async #takeBack(name: string): Promise<void> {
    const link = (await this.netlink.links()).find((each) => each.name === name);
    if (!link) return;
    for (const address of this.records().lent(link)) await this.netlink.removeAddress(link.index, address);
    await this.records().lend(link, []);
  }
}

export function isForeignBridge(existing: Link | undefined, { mac, foreign }: Ownership): boolean {
  if (!existing) return false;
  return mac === undefined ? foreign : existing.mac !== mac;
}

/** Returns a random address that is locally administered and belongs to one station. */
export function randomMac(): string {
  return Buffer.concat([Buffer.of(0x02, 0x42), randomBytes(4)])
    .toString('hex')
    .replaceAll(/(..)(?=.)/g, '$1:');
}

function isSame(a: LinkAddress, b: LinkAddress): boolean {
  return a.ip === b.ip && a.prefixLength === b.prefixLength;
}
