/**
 * The bridges of the host: those that are made here, which go again, and those that others have made, which are as they
 * were when their network is gone. A bridge is known by its MAC address: another one may have its name later.
 */
import { randomBytes } from 'node:crypto';
import type { Link, LinkAddress, Netlink } from '../sys/route-netlink.js';
import { Bridge, type BridgePlan, hostAddresses } from './bridge.js';
import type { NetworkRecords } from './network-records.js';

/** Whose a bridge is. */
export interface Ownership {
  /** MAC address of the one that is made here; without, an earlier version has noted only whose it was. */
  readonly mac?: string;
  /** The link was there when the network was made: it stays as it is. */
  readonly foreign: boolean;
}

export class HostBridges {
  /** @param records on disk; asked for when a bridge is opened. */
  constructor(
    private readonly netlink: Netlink,
    private readonly records: () => NetworkRecords,
  ) {}

  /** Makes the bridge of a plan, or takes the one that is there. */
  async open(plan: BridgePlan, existing: Link | undefined, ownership: Ownership): Promise<Bridge> {
    const isForeign = isForeignBridge(existing, ownership);
    if (existing && isForeign) await this.#lend(existing, hostAddresses(plan));
    return Bridge.open(plan, this.netlink, existing, { isForeign, mac: ownership.mac ?? randomMac() });
  }

  /** Takes away what was made of these: links, or the addresses that were given to links of others. */
  async close(bridges: readonly Bridge[]): Promise<void> {
    await this.netlink.deleteLinks(bridges.flatMap(({ plan, isForeign }) => (isForeign ? [] : [plan.link])));
    for (const { plan, isForeign } of bridges) if (isForeign) await this.#takeBack(plan.link);
  }

  /** Notes which addresses the bridge of somebody else is given, before it is; those of an earlier run may go. */
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

/** Locally administered, of one station. */
export function randomMac(): string {
  return Buffer.concat([Buffer.of(0x02, 0x42), randomBytes(4)]).toString('hex').replaceAll(/(..)(?=.)/g, '$1:');
}

function isSame(a: LinkAddress, b: LinkAddress): boolean {
  return a.ip === b.ip && a.prefixLength === b.prefixLength;
}
