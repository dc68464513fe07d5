/** Attaches containers to networks: addresses, links, names and published ports together. */
import { randomBytes } from 'node:crypto';
import { conflict, type EngineError, internal, invalid, isEngineError } from '../errors/engine-error.js';
import type {
  AttachRequest,
  AttachResult,
  Endpoint,
  EndpointNames,
  NetworkSummary,
  PortRequest,
  PublishedPort,
} from '../ports/network.js';
import type { LinkAddress, Netlink } from '../sys/netlink/route-netlink.js';
import { NO_LEASE } from './address-space.js';
import type { AttachableNetwork, Ports } from './attachable-network.js';
import { HOST_LINK } from './bridge.js';
import { linkParameters, wantedLinkName } from './endpoint-options.js';
import { familyOf, parseSubnet, toAddress, type Subnet } from './subnet.js';
import { Resolvers } from './dns/resolvers.js';
import { EndpointPorts, type PortsOptions } from './endpoint-ports.js';
import { refuseAdvertisements } from './link-parameters.js';
import { Sandboxes } from './sandboxes.js';
import { waysOut, type WayOut } from './ways-out.js';
import type { UnderWay } from './under-way.js';

export interface EndpointOptions extends PortsOptions {
  readonly netlink: Netlink;
  /** Directory of the namespaces' mounts. */
  readonly netnsRoot: string;
}

interface Attachment {
  readonly containerId: string;
  readonly endpoint: Endpoint;
  readonly network: AttachableNetwork;
  readonly ports: Ports;
}

type Undo = () => void | Promise<void>;

/** After this time the kernel has removed a namespace, and its links are looked for. */
const TEARDOWN_MS = 2000;
/** Prefix lengths of link-local addresses (RFC 3927 and RFC 4291). */
const LINK_LOCAL_PREFIX = { 4: 16, 6: 64 } as const;

export class Endpoints {
  readonly sandboxes: Sandboxes;
  /** Attachments by endpoint ID, in the order in which they were made. */
  readonly #attachments = new Map<string, Attachment>();
  readonly #resolvers = new Resolvers();
  /** Host sides of links whose sandbox was removed. */
  #leaving: string[] = [];
  #sweep: NodeJS.Timeout | undefined;

  constructor(private readonly options: EndpointOptions) {
    this.sandboxes = new Sandboxes(options.netnsRoot);
  }

  get isIdle(): boolean {
    return this.#attachments.size === 0;
  }

  /** Returns the endpoints of a network. */
  of(networkId: string): { readonly containerId: string; readonly endpoint: Endpoint }[] {
    return [...this.#attachments.values()].filter(({ endpoint }) => endpoint.networkId === networkId);
  }

  /**
   * Names the next endpoint of a container on a network. @throws EngineError conflict for a wanted name that another
   * endpoint has.
   */
  name(
    containerId: string,
    { interfacePrefix }: Pick<AttachableNetwork, 'interfacePrefix'>,
    options: Readonly<Record<string, string>>,
  ): EndpointNames {
    const used = new Set(this.#ofContainer(containerId).map(({ endpoint }) => endpoint.interfaceName));
    const wanted = wantedLinkName(options);
    if (wanted !== undefined && used.has(wanted))
      throw conflict(`the container has an interface ${wanted} already`, { code: 'INTERFACE_NAME' });
    if (wanted !== undefined) return { endpointId: randomBytes(32).toString('hex'), interfaceName: wanted };
    let number = 0;
    while (used.has(`${interfacePrefix}${number}`)) number++;
    return { endpointId: randomBytes(32).toString('hex'), interfaceName: `${interfacePrefix}${number}` };
  }

  async attach(network: AttachableNetwork, request: AttachRequest): Promise<AttachResult> {
    const { space, summary, plugin } = network;
    const { containerId, options = {} } = request;
    for (const address of [request.ipv4, request.ipv6])
      if (address !== undefined && !network.staticAddresses) throw staticAddressRefused(summary);
    const undo: Undo[] = [];
    try {
      const mac = request.macAddress ?? ((await space.needsMac()) ? macFor('') : undefined);
      const ipv4 = await space.lease(4, request.ipv4, mac, containerId);
      undo.push(() => space.release(ipv4.address));
      const ipv6 = request.withoutIpv6 ? NO_LEASE : await space.lease(6, request.ipv6, mac, containerId);
      undo.push(() => space.release(ipv6.address));
      const draft: Endpoint = {
        networkId: summary.id,
        networkName: summary.name,
        ...(request.names ?? this.name(containerId, network, options)),
        macAddress: network.sharesMac ? '' : (mac ?? (plugin ? '' : macFor(ipv4.address))),
        ipv4: ipv4.address,
        ipv4PrefixLength: ipv4.prefixLength,
        gateway: ipv4.gateway,
        ipv6: ipv6.address,
        ipv6PrefixLength: ipv6.prefixLength,
        ipv6Gateway: ipv6.gateway,
        aliases: request.aliases,
        dnsNames: request.dnsNames,
        links: request.links ?? {},
        gatewayPriority: request.gatewayPriority ?? 0,
        showsPorts: summary.driver === 'bridge',
      };
      const nameLink = (interfacePrefix: string): string =>
        this.name(containerId, { interfacePrefix }, options).interfaceName;
      const endpoint = plugin
        ? await plugin.connect(draft, {
            sandboxPath: this.sandboxes.path(containerId),
            ports: request.ports,
            options,
            nameLink,
          })
        : draft;
      if (plugin) undo.push(() => plugin.disconnect(containerId, endpoint));
      // The routes over its own link go with the link.
      undo.push(() => this.sandboxes.route(containerId, this.#waysOut(containerId)));
      const attachment = this.#admit(containerId, endpoint, network);
      undo.push(() => void this.#attachments.delete(endpoint.endpointId));
      const isWayOut = this.#waysOut(containerId).some((way) => way.endpoint === endpoint);
      const published = isWayOut || request.ports.length > 0 ? attachment.ports.open(request.ports) : undefined;
      undo.push(() => attachment.ports.close());
      // Rules, names and link are made at the same time. If one fails, all have ended before anything is undone.
      const named = summary.hasNames ? this.#join(attachment, request.nameservers ?? []) : undefined;
      undo.push(() => this.#resolvers.leave(containerId, endpoint));
      undo.push(() => this.sandboxes.unplug(containerId, endpoint.interfaceName));
      const results = await Promise.allSettled([this.#plug(attachment, request), published, named]);
      for (const result of results) if (result.status === 'rejected') throw result.reason;
      return { endpoint, ports: attachment.ports.list };
    } catch (error) {
      for (const step of undo.toReversed()) {
        try {
          await step();
        } catch (failure) {
          this.options.log.error({ err: failure, container: containerId }, 'undoing a network endpoint');
        }
      }
      throw withNetwork(error, summary);
    }
  }

  #admit(containerId: string, endpoint: Endpoint, network: AttachableNetwork): Attachment {
    const ports = network.plugin?.ports(endpoint) ?? new EndpointPorts(this.options, endpoint, network.publishing);
    const attachment = { containerId, endpoint, network, ports };
    this.#attachments.set(endpoint.endpointId, attachment);
    return attachment;
  }

  /** Makes the link and configures the container's end. */
  async #plug(
    { containerId, endpoint, network: { medium, plugin } }: Attachment,
    { options = {}, linkLocalAddresses: wanted = [], withoutIpv6 = false }: AttachRequest,
  ): Promise<void> {
    const { endpointId, interfaceName: name } = endpoint;
    if (name === '') return;
    const parameters = linkParameters(options);
    const linkLocalAddresses = wanted.filter((ip) => !withoutIpv6 || familyOf(ip) === 4);
    const hasIpv6 = [endpoint.ipv6, ...linkLocalAddresses].some((ip) => familyOf(ip) === 6);
    const routes = plugin?.routes(endpointId) ?? [];
    await this.sandboxes.within(containerId, async (inside, netnsFd) => {
      const mac = Buffer.from(endpoint.macAddress.replaceAll(/[:-]/g, ''), 'hex');
      const end = { endpointId, hostName: hostLink(endpointId), name, mac, netnsFd };
      await this.sandboxes.plug(containerId, hasIpv6, () => medium.plug(end));
      const index = inside.indexOf(name);
      if (index === undefined) throw internal(`interface ${name} vanished from the namespace`);
      await this.sandboxes.setParameters(containerId, name, hasIpv6, parameters);
      await inside.configure(index, {
        addresses: [
          { ip: endpoint.ipv4, prefixLength: endpoint.ipv4PrefixLength },
          { ip: endpoint.ipv6, prefixLength: endpoint.ipv6PrefixLength },
          ...linkLocalAddresses.map((ip) => ({ ip, prefixLength: LINK_LOCAL_PREFIX[familyOf(ip)] })),
        ].filter(({ ip }) => ip !== ''),
        gateways: this.#waysOut(containerId)
          .filter((way) => way.endpoint === endpoint)
          .map(({ gateway }) => gateway),
        routes: routes.map(({ destination, nextHop }) => ({
          destination: addressOf(parseSubnet(destination, 'route')),
          nextHop,
        })),
      });
    });
  }

  #join({ containerId, endpoint, network }: Attachment, nameservers: readonly string[]): Promise<void> {
    return this.#resolvers.join({
      containerId,
      netnsPath: this.sandboxes.path(containerId),
      endpoint,
      internal: network.summary.internal,
      nameservers,
    });
  }

  #ofContainer(containerId: string): Attachment[] {
    return [...this.#attachments.values()].filter((attachment) => attachment.containerId === containerId);
  }

  #waysOut(containerId: string): WayOut[] {
    return waysOut(this.#ofContainer(containerId));
  }

  async publish({ endpointId }: Endpoint, ports: readonly PortRequest[]): Promise<readonly PublishedPort[]> {
    const attachment = this.#attachments.get(endpointId);
    if (!attachment) return [];
    try {
      await attachment.ports.open(ports);
    } catch (error) {
      await attachment.ports.close();
      throw error;
    }
    return attachment.ports.list;
  }

  async unpublish({ endpointId }: Endpoint): Promise<void> {
    await this.#attachments.get(endpointId)?.ports.close();
  }

  rename(containerId: string, endpoint: Endpoint): void {
    this.#resolvers.rename(containerId, endpoint);
  }

  /** Frees addresses and ports. The link goes with its namespace, which the kernel tears down in its own time. */
  async detach(containerId: string, { endpointId }: Endpoint): Promise<void> {
    const attachment = this.#attachments.get(endpointId);
    if (!attachment) return;
    this.#attachments.delete(endpointId);
    const { network, endpoint, ports } = attachment;
    this.#resolvers.leave(containerId, endpoint);
    if (network.plugin) {
      await this.#closePorts(containerId, ports);
      await network.plugin.disconnect(containerId, endpoint);
    }
    network.space.release(endpoint.ipv4);
    network.space.release(endpoint.ipv6);
    // The rules are removed in the background.
    void this.#closePorts(containerId, ports);
    if (this.#leaving.push(hostLink(endpointId)) === 1)
      this.#sweep = setTimeout(() => this.#sweepLeaving(), TEARDOWN_MS).unref();
  }

  async #closePorts(containerId: string, ports: Ports): Promise<void> {
    await ports
      .close()
      .catch((error: unknown) =>
        this.options.log.error({ err: error, container: containerId }, 'rules of published ports are not removed'),
      );
  }

  /**
   * Removes links of sandboxes that are gone. A namespace lives on while a process of another container shares it, and
   * its links must not keep addresses that are free.
   */
  #sweepLeaving(): void {
    const names = this.#leaving.filter((name) => this.options.netlink.indexOf(name) !== undefined);
    this.#leaving = [];
    this.options.netlink
      .deleteLinks(names)
      .catch((error: unknown) => this.options.log.error({ err: error }, 'links of containers that are gone'));
  }

  /** Does the same as `detach` in a sandbox that stays. */
  async disconnect(containerId: string, endpoint: Endpoint): Promise<void> {
    const before = this.#waysOut(containerId);
    await this.detach(containerId, endpoint);
    await this.sandboxes.unplug(containerId, endpoint.interfaceName);
    const isNew = (way: WayOut): boolean =>
      !before.some((old) => old.endpoint === way.endpoint && old.gateway === way.gateway);
    await this.sandboxes.route(containerId, this.#waysOut(containerId).filter(isNew));
  }

  /**
   * Removes the endpoint of a daemon that died. Its addresses and ports are free; its link is left, and default routes
   * may have gone with it.
   */
  async discard(containerId: string, { endpointId, interfaceName }: EndpointNames): Promise<void> {
    await this.options.netlink.deleteLinks([hostLink(endpointId)]);
    await this.sandboxes.unplug(containerId, interfaceName);
    await this.sandboxes.route(containerId, this.#waysOut(containerId));
  }

  /** Takes over the endpoint of a container that survived the daemon. */
  async adopt(
    network: AttachableNetwork,
    containerId: string,
    endpoint: Endpoint,
    ports: readonly PublishedPort[],
    nameservers: readonly string[],
  ): Promise<void> {
    if (this.#attachments.has(endpoint.endpointId)) return;
    const { space } = network;
    const report = (error: unknown, message: string): void =>
      this.options.log.error({ err: error, container: containerId }, message);
    for (const [family, address] of [
      [4, endpoint.ipv4],
      [6, endpoint.ipv6],
    ] as const) {
      if (address === '') continue;
      try {
        await space.adopt(family, address, containerId);
      } catch (error) {
        report(error, 'the address of a running container is not of its network any more');
      }
    }
    network.plugin?.adopt(endpoint);
    try {
      // An earlier version may have made the link.
      refuseAdvertisements(hostLink(endpoint.endpointId));
    } catch (error) {
      report(error, 'a running container can announce itself to the host as a router');
    }
    const attachment = this.#admit(containerId, endpoint, network);
    const named = network.summary.hasNames ? this.#join(attachment, nameservers) : undefined;
    await Promise.all([
      attachment.ports.adopt(ports, containerId),
      named?.catch((error: unknown) => report(error, 'a running container has no name server')),
    ]);
  }

  /** Deletes links in these bridges that nobody owns: their containers ended while no daemon ran. */
  async sweep(bridges: ReadonlySet<string>): Promise<void> {
    const owned = new Set([...this.#attachments.keys()].map(hostLink));
    const links = await this.options.netlink.links();
    const masters = new Set(links.flatMap(({ name, index }) => (bridges.has(name) ? [index] : [])));
    await this.options.netlink.deleteLinks(
      links.flatMap(({ name, master }) =>
        masters.has(master) && HOST_LINK.test(name) && !owned.has(name) ? [name] : [],
      ),
    );
  }

  /** Waits for connections to published ports that no next process goes on with, as `Ports.rest`. */
  async rest(underWay: UnderWay): Promise<void> {
    await Promise.all(Array.from(this.#attachments.values(), ({ ports }) => ports.rest(underWay)));
  }

  /** Leaves what belongs to this process to the next one; containers keep their links. */
  close(): void {
    clearTimeout(this.#sweep);
    if (this.#leaving.length > 0) this.#sweepLeaving();
    for (const { ports } of this.#attachments.values()) ports.release();
    this.sandboxes.close();
    this.#resolvers.close();
  }
}

function staticAddressRefused({ name }: NetworkSummary): EngineError {
  return invalid(
    name === 'bridge'
      ? 'user specified IP address is supported on user defined networks only'
      : 'user specified IP address is supported only when connecting to networks with user configured subnets',
    { code: 'STATIC_ADDRESS' },
  );
}

function addressOf({ family, base, prefixLength }: Subnet): LinkAddress {
  return { ip: toAddress(family, base), prefixLength };
}

/** Returns the name of the end of an endpoint's link that stays on the host. */
export function hostLink(endpointId: string): string {
  return `veth${endpointId.slice(0, 7)}`;
}

/** Returns the MAC address that belongs to an IPv4 address, so that peers' ARP caches stay right when it is reused. */
function macFor(address: string): string {
  const bytes = address === '' ? randomBytes(4) : Buffer.from(address.split('.').map(Number));
  return `02:42:${bytes.toString('hex').replaceAll(/(..)(?=.)/g, '$1:')}`;
}

/** The error of a subnet without a free address names the network, as the known engine's. */
function withNetwork(error: unknown, { name, id }: NetworkSummary): unknown {
  if (!isEngineError(error) || error.code !== 'NO_ADDRESS') return error;
  return internal(`${error.message.slice(0, error.message.indexOf(': '))}: ${name} (${id})`, { code: error.code });
}
