/** A bridge device on the host with the addresses of its network. */
import { writeFile } from 'node:fs/promises';
import { unavailable } from '../errors/engine-error.js';
import type { GatewayMode } from './gateway-mode.js';
import type { Link, LinkAddress, Netlink } from '../sys/netlink/route-netlink.js';
import type { AddressPlan } from './address-space.js';
import type { ContainerEnd, Medium } from './attachable-network.js';
import type { BridgeRules } from './firewall-rules.js';
import { guardHostLink, refuseAdvertisements } from './link-parameters.js';
import { formatSubnet, type Family } from './subnet.js';

/** Matches the host's ends of containers' links. */
export const HOST_LINK = /^veth[0-9a-f]{7}$/;

export interface BridgePlan {
  readonly link: string;
  readonly mtu: number;
  readonly interContainer: boolean;
  readonly masquerade: boolean;
  /** Source address of packets that leave, by family, instead of the one that the kernel chooses. */
  readonly sources: Readonly<Partial<Record<Family, string>>>;
  /** True if packets can neither enter nor leave. */
  readonly internal: boolean;
  /** The bridge may send frames back where they came from. */
  readonly hairpin: boolean;
  readonly modes: Readonly<Record<Family, GatewayMode>>;
  /** At most one for each family. */
  readonly addresses: readonly AddressPlan[];
}

/** Returns the addresses that the host has on the bridge of a plan. */
export function hostAddresses({ addresses }: BridgePlan): LinkAddress[] {
  return addresses.flatMap(({ hostAddress, subnet }) =>
    hostAddress === '' ? [] : [{ ip: hostAddress, prefixLength: subnet.prefixLength }],
  );
}

/** A bridge that is up. */
export class Bridge implements Medium {
  private constructor(
    readonly plan: BridgePlan,
    readonly index: number,
    private readonly netlink: Netlink,
    /** True if somebody else has made the bridge. */
    readonly isForeign: boolean,
  ) {}

  /**
   * Makes the bridge or takes the existing one. On the daemon's own bridge, old addresses and the MTU are changed; a
   * foreign bridge keeps all that it has.
   */
  static async open(
    plan: BridgePlan,
    netlink: Netlink,
    existing: Link | undefined,
    { isForeign, mac }: { readonly isForeign: boolean; readonly mac: string },
  ): Promise<Bridge> {
    const hasIpv6 = plan.addresses.some(({ subnet }) => subnet.family === 6) && plan.modes[6] !== 'isolated';
    if (!existing)
      await netlink.createBridge({ name: plan.link, mac: Buffer.from(mac.replaceAll(':', ''), 'hex'), mtu: plan.mtu });
    const index = existing?.index ?? netlink.indexOf(plan.link);
    if (index === undefined) throw unavailable(`the bridge ${plan.link} vanished while it was made`);
    const wanted = hostAddresses(plan);
    if (existing && !isForeign) {
      // When its MTU grows, the kernel may give a link IPv6 with default settings, so the MTU is set first.
      if (existing.mtu !== plan.mtu) await netlink.setMtu(index, plan.mtu);
      for (const old of await netlink.addresses()) {
        const isWanted = wanted.some(({ ip, prefixLength }) => ip === old.ip && prefixLength === old.prefixLength);
        if (old.linkIndex === index && !isWanted && !old.ip.startsWith('fe80:'))
          await netlink.removeAddress(index, old);
      }
    }
    if (!isForeign) await guardHostLink(plan.link, hasIpv6);
    else if (!(await hasOtherPorts(index, netlink))) refuseAdvertisements(plan.link);
    // Without this, a new bridge could not find containers for a second or two, while it looks for duplicates of its
    // own address.
    if (!existing && hasIpv6) await writeFile(`/proc/sys/net/ipv6/conf/${plan.link}/accept_dad`, '0');
    await netlink.configure(index, { addresses: wanted, gateways: [] });
    return new Bridge(plan, index, netlink, isForeign);
  }

  get mtu(): number {
    return this.plan.mtu;
  }

  get families(): Family[] {
    return this.plan.addresses.map(({ subnet }) => subnet.family);
  }

  get rules(): BridgeRules {
    const { link, interContainer, masquerade, sources, internal, modes } = this.plan;
    return {
      bridge: link,
      subnets: Object.fromEntries(this.plan.addresses.map(({ subnet }) => [subnet.family, formatSubnet(subnet)])),
      interContainer,
      masquerade,
      sources,
      internal,
      modes,
    };
  }

  async plug({ hostName, name, mac, netnsFd }: ContainerEnd): Promise<void> {
    const { mtu, hairpin, interContainer } = this.plan;
    const peer = { name, mac, netnsFd };
    await this.netlink.createVeth({
      name: hostName,
      bridgeIndex: this.index,
      mtu,
      hairpin,
      isolated: !interContainer,
      peer,
    });
    // The other end is still down, so no packet has come through.
    refuseAdvertisements(hostName);
  }
}

/**
 * Tells whether somebody else has plugged links into a bridge: the host may need to listen to a router behind such a
 * link.
 */
async function hasOtherPorts(index: number, netlink: Netlink): Promise<boolean> {
  return (await netlink.links()).some(({ master, name }) => master === index && !HOST_LINK.test(name));
}
