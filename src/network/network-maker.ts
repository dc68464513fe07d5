/** Makes on the host what the record of a network asks for, and removes it again. */
import { forbidden, invalid } from '../errors/engine-error.js';
import type { NetworkPlugins } from '../ports/network-plugin.js';
import type { NetworkSummary } from '../ports/network.js';
import type { Link, Netlink } from '../sys/netlink/route-netlink.js';
import { AddressSpace, type AddressPlan } from './address-space.js';
import type { Addresses, AttachableNetwork } from './attachable-network.js';
import { Bridge, type BridgePlan } from './bridge.js';
import type { Firewall } from './firewall.js';
import type { HostBridges } from './host-bridges.js';
import { routeLoopback } from './forwarding.js';
import {
  addressPlans,
  bindingAddress,
  bridgePlan,
  interfacePrefix,
  isPluginDriver,
  isPluginIpam,
} from './network-plan.js';
import type { OpenOptions } from './open-options.js';
import { ParentLink, parentPlan } from './parent-link.js';
import { PluginAddresses, type LeasedPool } from './plugin-addresses.js';
import type { PluginDebts } from './plugin-debts.js';
import { PluginNetwork } from './plugin-network.js';
import type { Sandboxes } from './sandboxes.js';

export interface MakerOptions {
  readonly netlink: Netlink;
  readonly firewall: Firewall;
  readonly userlandProxy: boolean;
  readonly iptables: boolean;
  readonly ip6tables: boolean;
  readonly ipForward: boolean;
  readonly ipForwardNoDrop: boolean;
  readonly plugins: NetworkPlugins;
  readonly debts: PluginDebts;
  readonly sandboxes: Sandboxes;
  readonly bridges: HostBridges;
}

export class NetworkMaker {
  constructor(private readonly options: MakerOptions) {}

  /**
   * Returns the name of the link that a network needs on the host. @throws EngineError invalid for options that cannot
   * be fulfilled.
   */
  linkOf(summary: NetworkSummary): string {
    interfacePrefix(summary);
    if (isPluginDriver(summary.driver)) return '';
    if (summary.driver !== 'bridge') return parentPlan(summary).parent;
    bindingAddress(summary);
    return bridgePlan(summary, false).link;
  }

  /**
   * Tells whether the link exists already, which is allowed. @throws EngineError if it cannot be used or belongs to
   * another network.
   */
  isForeign(summary: NetworkSummary, links: readonly Link[], others: readonly NetworkSummary[]): boolean {
    const name = this.linkOf(summary);
    const existing = links.find((link) => link.name === name);
    if (!existing) return false;
    if (summary.driver !== 'bridge') return true;
    if (existing.kind !== 'bridge')
      throw invalid(`existing interface ${name} is not a bridge`, { code: 'LINK_EXISTS' });
    const other = others.find((each) => each.driver === 'bridge' && this.linkOf(each) === name);
    if (other)
      throw forbidden(
        `cannot create network ${summary.id} (${name}): conflicts with network ${other.id} (${name}): ` +
          'networks have same bridge name',
        { code: 'LINK_EXISTS' },
      );
    return true;
  }

  /** Makes a network on the host. `isFresh`: it is new, and not opened again at the start of the daemon. */
  async open(
    summary: NetworkSummary,
    open: OpenOptions,
    links: readonly Link[],
    isFresh = false,
  ): Promise<AttachableNetwork> {
    const network = await this.#open(summary, open, links);
    return isPluginIpam(summary) ? { ...network, space: this.#pluginAddresses(summary, open, isFresh) } : network;
  }

  async #open(summary: NetworkSummary, open: OpenOptions, links: readonly Link[]): Promise<AttachableNetwork> {
    if (isPluginDriver(summary.driver)) {
      const plugin = new PluginNetwork(summary, this.options);
      return {
        ...common(summary, addressPlans(summary, false), open.chosen),
        link: '',
        medium: plugin,
        plugin,
        publishing: undefined,
        onLink: false,
        sharesMac: false,
      };
    }
    return summary.driver === 'bridge'
      ? this.#openBridge(summary, bridgePlan(summary, !this.options.userlandProxy), open, links)
      : this.#openParent(summary, open, links);
  }

  #pluginAddresses(summary: NetworkSummary, open: OpenOptions, isFresh: boolean): Addresses {
    return new PluginAddresses(summary, poolsOf(summary, open), this.options.plugins, this.options.debts, isFresh);
  }

  /** Makes a network on a bridge; nothing is left when it fails. */
  async #openBridge(
    summary: NetworkSummary,
    plan: BridgePlan,
    open: OpenOptions,
    links: readonly Link[],
  ): Promise<AttachableNetwork> {
    const { netlink, firewall, bridges } = this.options;
    const existing = links.find(({ name }) => name === plan.link);
    let bridge: Bridge | undefined;
    try {
      bridge = await bridges.open(plan, existing, open);
      return await this.admit(summary, bridge, open.chosen);
    } catch (error) {
      await firewall.removeBridge(plan.link);
      if (!existing) await netlink.deleteLinks([plan.link]);
      else if (bridge?.isForeign) await bridges.close([bridge]);
      throw error;
    }
  }

  /** Lets packets of a bridge pass as its network wants it. */
  async admit(summary: NetworkSummary, bridge: Bridge, staticAddresses: boolean): Promise<AttachableNetwork> {
    const { firewall, userlandProxy, iptables, ip6tables, ipForward, ipForwardNoDrop } = this.options;
    const { link, internal, addresses } = bridge.plan;
    await firewall.setBridge(bridge.rules);
    // This comes after the rules that keep containers away from the host's own services.
    if (!userlandProxy && iptables && !internal) await routeLoopback(link);
    if (ipForward)
      for (const family of bridge.families)
        await firewall.allowForwarding(family, !ipForwardNoDrop && iptables && (family === 4 || ip6tables));
    const publishing = internal
      ? undefined
      : {
          link,
          address: bindingAddress(summary),
          routed: ([4, 6] as const).filter((family) => bridge.plan.modes[family] === 'routed'),
        };
    return {
      ...common(summary, addresses, staticAddresses),
      link,
      medium: bridge,
      publishing,
      onLink: false,
      sharesMac: false,
    };
  }

  async #openParent(
    summary: NetworkSummary,
    { chosen, foreign }: OpenOptions,
    links: readonly Link[],
  ): Promise<AttachableNetwork> {
    const plan = parentPlan(summary);
    const { isolated, routed, parent, kind } = plan;
    const medium = await ParentLink.open(plan, this.options.netlink, links, foreign);
    // The host has no address on such a network: its gateway is a router outside.
    const addresses = addressPlans(summary, isolated || routed).map((each) => ({
      ...each,
      hostAddress: isolated || routed ? '' : each.hostAddress,
    }));
    return {
      ...common(summary, addresses, chosen),
      link: parent,
      medium,
      publishing: undefined,
      onLink: routed && !isolated,
      sharesMac: kind === 'ipvlan',
    };
  }

  /** Removes the link of a network that has no containers. `isShared`: another network uses the link. */
  async close(network: AttachableNetwork, isShared: boolean): Promise<void> {
    if (network.link === '') return;
    await Promise.all([
      isShared ? undefined : this.removeLinks([network]),
      this.options.firewall.removeBridge(network.link),
    ]);
  }

  /** Removes the links of networks; links of others are left as they were found. */
  async removeLinks(networks: readonly AttachableNetwork[]): Promise<void> {
    const { bridges, netlink } = this.options;
    await bridges.close(networks.flatMap(({ medium }) => (medium instanceof Bridge ? [medium] : [])));
    await netlink.deleteLinks(
      networks.flatMap(({ medium, link }) => (medium instanceof ParentLink && !medium.isForeign ? [link] : [])),
    );
  }
}

/** Returns the subnets of a network as they are known to the process that has given them. */
export function poolsOf({ subnets }: NetworkSummary, { poolIds = [] }: Pick<OpenOptions, 'poolIds'>): LeasedPool[] {
  return subnets.map((subnet, index) => ({ id: poolIds[index] ?? '', subnet }));
}

function common(
  summary: NetworkSummary,
  addresses: readonly AddressPlan[],
  staticAddresses: boolean,
): Pick<AttachableNetwork, 'summary' | 'space' | 'staticAddresses' | 'interfacePrefix'> {
  return { summary, space: new AddressSpace(addresses), staticAddresses, interfacePrefix: interfacePrefix(summary) };
}
