/** A bridge device on the host with the addresses of its network. */
import { randomBytes } from 'node:crypto';
import { unavailable } from '../errors/engine-error.js';
import type { Link, LinkAddress, Netlink } from '../sys/route-netlink.js';
import { AddressPool } from './address-pool.js';
import type { BridgeRules } from './firewall-rules.js';
import { familyOf, formatSubnet, type Family, type Subnet } from './subnet.js';

export interface AddressPlan {
  readonly subnet: Subnet;
  /** The bridge's own; '' for none. */
  readonly bridgeAddress: string;
  /** Where containers send what is for others; '' for nowhere. */
  readonly gateway: string;
  /** What containers get addresses from. */
  readonly range: Subnet;
  /** Addresses in use by others. */
  readonly reserved: readonly string[];
}

export interface BridgePlan {
  readonly link: string;
  readonly mtu: number;
  readonly interContainer: boolean;
  readonly masquerade: boolean;
  /** No way in or out. */
  readonly internal: boolean;
  /** At most one for each family. */
  readonly addresses: readonly AddressPlan[];
}

interface Space {
  readonly plan: AddressPlan;
  readonly pool: AddressPool;
}

/** A bridge that is up. */
export class Bridge {
  readonly #spaces: ReadonlyMap<Family, Space>;

  private constructor(
    readonly plan: BridgePlan,
    readonly index: number,
  ) {
    this.#spaces = new Map(
      plan.addresses.map((addresses) => {
        const pool = new AddressPool(addresses.subnet, addresses.range);
        for (const address of new Set([addresses.bridgeAddress, addresses.gateway, ...addresses.reserved])) if (address !== '') pool.reserve(address);
        return [addresses.subnet.family, { plan: addresses, pool }];
      }),
    );
  }

  /** Makes the bridge or takes the one that is there. `isOurs`: its old addresses and MTU may be changed. */
  static async open(plan: BridgePlan, netlink: Netlink, existing: Link | undefined, isOurs: boolean): Promise<Bridge> {
    const linkLocal = plan.addresses.some(({ subnet }) => subnet.family === 6);
    if (!existing) await netlink.createBridge({ name: plan.link, mac: randomMac(), mtu: plan.mtu, linkLocal });
    const index = existing?.index ?? netlink.indexOf(plan.link);
    if (index === undefined) throw unavailable(`the bridge ${plan.link} vanished while it was made`);
    const wanted: LinkAddress[] = plan.addresses.filter(({ bridgeAddress }) => bridgeAddress !== '').map(({ bridgeAddress, subnet }) => ({ ip: bridgeAddress, prefixLength: subnet.prefixLength }));
    if (existing && isOurs) {
      if (existing.mtu !== plan.mtu) await netlink.setMtu(index, plan.mtu);
      for (const old of await netlink.addresses()) {
        const isWanted = wanted.some(({ ip, prefixLength }) => ip === old.ip && prefixLength === old.prefixLength);
        if (old.linkIndex === index && !isWanted && !old.ip.startsWith('fe80:')) await netlink.removeAddress(index, old);
      }
    }
    await netlink.configure(index, { addresses: wanted, gateways: [], linkLocal });
    return new Bridge(plan, index);
  }

  get families(): Family[] {
    return [...this.#spaces.keys()];
  }

  get rules(): BridgeRules {
    const { link, interContainer, masquerade, internal } = this.plan;
    return { bridge: link, subnets: Object.fromEntries(this.plan.addresses.map(({ subnet }) => [subnet.family, formatSubnet(subnet)])), interContainer, masquerade, internal };
  }

  prefixLength(family: Family): number {
    return this.#spaces.get(family)?.plan.subnet.prefixLength ?? 0;
  }

  /** '' where containers have none. */
  gateway(family: Family): string {
    return this.#spaces.get(family)?.plan.gateway ?? '';
  }

  /** An address; '' where the network has none of the family. Throws unavailable, invalid or conflict. */
  allocate(family: Family, wanted: string | undefined): string {
    const space = this.#spaces.get(family);
    if (!space) return '';
    if (wanted === undefined) return space.pool.allocate();
    space.pool.reserve(wanted);
    return wanted;
  }

  /** Takes an address back; '' is none. */
  release(address: string): void {
    if (address !== '') this.#spaces.get(familyOf(address))?.pool.release(address);
  }
}

/** Locally administered, of one station. */
function randomMac(): Buffer {
  return Buffer.concat([Buffer.of(0x02, 0x42), randomBytes(4)]);
}
