/** A network that another process makes: it is asked for each endpoint, and its links are moved into the containers. */
import { type EngineError, forbidden, internal } from '../errors/engine-error.js';
import type { NetworkPlugins, PluginJoin, PluginNetworkRequest, PluginRoute } from '../ports/network-plugin.js';
import type { Endpoint, NetworkSummary, PortRequest, PublishedPort } from '../ports/network.js';
import type { Netlink } from '../sys/netlink/route-netlink.js';
import type { ContainerEnd, EndpointPlugin, Medium, Ports } from './attachable-network.js';
import type { PluginDebts } from './plugin-debts.js';
import type { Sandboxes } from './sandboxes.js';
import { familyOf } from './subnet.js';

export interface PluginNetworkOptions {
  readonly plugins: NetworkPlugins;
  readonly debts: PluginDebts;
  readonly netlink: Netlink;
  readonly sandboxes: Sandboxes;
}

export class PluginNetwork implements Medium, EndpointPlugin {
  readonly mtu = 1500;
  /** The driver's answers, by endpoint. */
  readonly #joined = new Map<string, PluginJoin>();

  constructor(
    private readonly summary: NetworkSummary,
    private readonly options: PluginNetworkOptions,
  ) {}

  async connect(
    draft: Endpoint,
    { sandboxPath, ports, options, nameLink }: Parameters<EndpointPlugin['connect']>[1],
  ): Promise<Endpoint> {
    const { id: networkId } = this.summary;
    const { endpointId } = draft;
    const plugin = await this.options.plugins.network(this.summary.driver);
    await this.options.debts.add(this.#debt(endpointId));
    try {
      const wanted = {
        ipv4: cidr(draft.ipv4, draft.ipv4PrefixLength),
        ipv6: cidr(draft.ipv6, draft.ipv6PrefixLength),
        macAddress: draft.macAddress,
      };
      const { ipv4, ipv6, macAddress } = await plugin.createEndpoint(networkId, endpointId, wanted, ports, options);
      const joined = await plugin.join(networkId, endpointId, sandboxPath, ports);
      this.#joined.set(endpointId, joined);
      const [address4 = '', prefix4] = ipv4.split('/');
      const [address6 = '', prefix6] = ipv6.split('/');
      return {
        ...draft,
        macAddress,
        ipv4: address4,
        ipv4PrefixLength: Number(prefix4 ?? 0),
        gateway: this.summary.internal ? '' : joined.gateway,
        ipv6: address6,
        ipv6PrefixLength: Number(prefix6 ?? 0),
        ipv6Gateway: this.summary.internal ? '' : joined.ipv6Gateway,
        interfaceName: joined.link === '' ? '' : nameLink(joined.prefix),
      };
    } catch (error) {
      this.#joined.delete(endpointId);
      await this.options.debts.pay(this.#debt(endpointId));
      throw error;
    }
  }

  async plug({ endpointId, name, mac, netnsFd }: ContainerEnd): Promise<void> {
    const link = this.#joined.get(endpointId)?.link ?? '';
    if (this.options.netlink.indexOf(link) === undefined)
      throw internal(`the network driver ${this.summary.driver} has not made the link ${link} that it names`, {
        code: 'PLUGIN',
      });
    await this.options.netlink.moveLink(link, { name, mac, netnsFd });
  }

  async disconnect(containerId: string, { endpointId, interfaceName }: Endpoint): Promise<void> {
    const link = this.#joined.get(endpointId)?.link ?? '';
    this.#joined.delete(endpointId);
    // The driver made the link and looks for it in its old place. If it does not delete the link, the link goes with
    // the sandbox.
    if (link !== '') await this.options.sandboxes.eject(containerId, interfaceName, link).catch(() => undefined);
    await this.options.debts.pay(this.#debt(endpointId));
  }

  adopt({ endpointId }: Endpoint): void {
    this.options.debts.claim(this.#debt(endpointId));
  }

  routes(endpointId: string): readonly PluginRoute[] {
    return this.#joined.get(endpointId)?.routes ?? [];
  }

  ports({ endpointId }: Endpoint): Ports {
    return new PluginPorts(this.summary, endpointId, this.options.plugins);
  }

  #debt(endpointId: string) {
    return { kind: 'endpoint', driver: this.summary.driver, networkId: this.summary.id, endpointId } as const;
  }
}

/**
 * Ports that the driver of the network publishes. The driver is told even if there are none, because the endpoint is
 * the way out then.
 */
class PluginPorts implements Ports {
  list: readonly PublishedPort[] = [];
  #isOpen = false;

  constructor(
    private readonly summary: NetworkSummary,
    private readonly endpointId: string,
    private readonly plugins: NetworkPlugins,
  ) {}

  async open(ports: readonly PortRequest[]): Promise<void> {
    await (await this.plugins.network(this.summary.driver)).program(this.summary.id, this.endpointId, ports);
    this.#isOpen = true;
    this.list = ports.map(({ protocol, containerPort, hostIp, hostPort }) => ({
      protocol,
      containerPort,
      hostIp: hostIp || '0.0.0.0',
      hostPort,
    }));
  }

  adopt(ports: readonly PublishedPort[]): Promise<void> {
    this.#isOpen = true;
    this.list = ports;
    return Promise.resolve();
  }

  async close(): Promise<void> {
    if (!this.#isOpen) return;
    this.release();
    await (await this.plugins.network(this.summary.driver)).revoke(this.summary.id, this.endpointId);
  }

  /** The driver serves them, whether the daemon is there or not. */
  rest(): Promise<void> {
    return Promise.resolve();
  }

  release(): void {
    this.#isOpen = false;
    this.list = [];
  }
}

/**
 * Checks the driver of a network. @throws EngineError not-found for a missing driver, forbidden for one that needs a
 * cluster.
 */
export async function checkNetworkDriver(plugins: NetworkPlugins, name: string): Promise<void> {
  const scope = await (await plugins.network(name)).scope();
  if (scope !== 'local') throw scopeRefused(scope);
}

function scopeRefused(scope: string): EngineError {
  return forbidden(`datastore for scope ${JSON.stringify(scope)} is not initialized`, { code: 'NO_SWARM' });
}

/** Returns what the driver is told of a new network. */
export function networkRequest(
  { id, options, internal: isInternal, enableIpv4, enableIpv6, subnets }: NetworkSummary,
  addressSpace: string,
): PluginNetworkRequest {
  const pools = (family: 4 | 6) =>
    subnets
      .filter(({ subnet }) => familyOf(subnet.split('/')[0] ?? '') === family)
      .map(({ subnet, gateway, auxiliaryAddresses }) => {
        const prefixLength = Number(subnet.split('/')[1]);
        return {
          addressSpace,
          subnet,
          gateway: cidr(gateway, prefixLength),
          auxiliaryAddresses: Object.fromEntries(
            Object.entries(auxiliaryAddresses).map(([key, address]) => [key, cidr(address, prefixLength)]),
          ),
        };
      });
  return { id, options, internal: isInternal, enableIpv4, enableIpv6, ipv4: pools(4), ipv6: pools(6) };
}

function cidr(address: string, prefixLength: number): string {
  return address === '' ? '' : `${address}/${prefixLength}`;
}
