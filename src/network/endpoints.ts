/** Sandboxes of containers and their endpoints on bridges. */
import { randomBytes } from 'node:crypto';
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { EngineError, internal, invalid, messageOf } from '../errors/engine-error.js';
import type { Logger } from '../ports/logger.js';
import type { AttachRequest, AttachResult, Endpoint, NetworkSummary, PortRequest, PublishedPort } from '../ports/network.js';
import { createNetns, inNetns, listNetns, removeNetns } from '../sys/netns.js';
import { IPV6_MIN_MTU, Netlink } from '../sys/route-netlink.js';
import type { AttachableNetwork, Publishing } from './attachable-network.js';
import { Resolvers } from './dns/resolvers.js';
import type { PortRule } from './firewall-rules.js';
import type { Firewall } from './firewall.js';
import { holdPort, type HeldPort } from './port-holder.js';
import type { Family } from './subnet.js';

export interface EndpointOptions {
  readonly netlink: Netlink;
  readonly firewall: Firewall;
  readonly userlandProxy: boolean;
  /** Directory of the namespaces' mounts. */
  readonly netnsRoot: string;
  readonly log: Logger;
}

interface Attachment {
  readonly containerId: string;
  readonly endpoint: Endpoint;
  readonly network: AttachableNetwork;
  held: readonly HeldPort[];
  rules: readonly PortRule[];
}

export interface WayOut {
  /** Of the network. */
  readonly name: string;
  readonly gatewayPriority: number;
}

type Undo = () => void | Promise<void>;

const LOOPBACK_INDEX = 1;
/** How long the kernel may take for a namespace that is gone until its links are looked for. */
const TEARDOWN_MS = 2000;

export class Endpoints {
  /** By endpoint ID, in the order in which they were attached. */
  readonly #attachments = new Map<string, Attachment>();
  /** Sockets inside sandboxes whose first endpoint is still to be configured. */
  readonly #insides = new Map<string, Netlink>();
  readonly #resolvers = new Resolvers();
  /** Host sides of links whose sandbox was removed. */
  #leaving: string[] = [];

  constructor(private readonly options: EndpointOptions) {}

  get isIdle(): boolean {
    return this.#attachments.size === 0;
  }

  /** Endpoints of a network. */
  of(networkId: string): { readonly containerId: string; readonly endpoint: Endpoint }[] {
    return [...this.#attachments.values()].filter(({ endpoint }) => endpoint.networkId === networkId);
  }

  sandboxIds(): string[] {
    return listNetns(this.options.netnsRoot);
  }

  sandboxPath(containerId: string): string {
    return join(this.options.netnsRoot, containerId);
  }

  async createSandbox(containerId: string): Promise<string> {
    const path = this.sandboxPath(containerId);
    this.removeSandbox(containerId);
    const inside = createNetns(path, () => new Netlink());
    try {
      await inside.configure(LOOPBACK_INDEX, { addresses: [], gateways: [], linkLocal: true });
    } catch (error) {
      inside.close();
      removeNetns(path);
      throw error;
    }
    this.#insides.set(containerId, inside);
    return path;
  }

  removeSandbox(containerId: string): void {
    this.#insides.get(containerId)?.close();
    this.#insides.delete(containerId);
    removeNetns(this.sandboxPath(containerId));
  }

  async attach(network: AttachableNetwork, request: AttachRequest): Promise<AttachResult> {
    const { space, summary } = network;
    for (const address of [request.ipv4, request.ipv6]) if (address !== undefined && !network.staticAddresses) throw staticAddressRefused(summary);
    const endpointId = request.endpointId ?? randomBytes(32).toString('hex');
    const undo: Undo[] = [];
    try {
      const ipv4 = space.lease(4, request.ipv4);
      undo.push(() => space.release(ipv4.address));
      const ipv6 = space.lease(6, request.ipv6);
      undo.push(() => space.release(ipv6.address));
      const endpoint: Endpoint = {
        networkId: summary.id,
        networkName: summary.name,
        endpointId,
        macAddress: network.sharesMac ? '' : (request.macAddress ?? macFor(ipv4.address)),
        ipv4: ipv4.address,
        ipv4PrefixLength: ipv4.prefixLength,
        gateway: ipv4.gateway,
        ipv6: ipv6.address,
        ipv6PrefixLength: ipv6.prefixLength,
        ipv6Gateway: ipv6.gateway,
        interfaceName: this.#freeInterface(request.containerId, network.interfacePrefix),
        aliases: request.aliases,
        dnsNames: request.dnsNames,
        links: request.links ?? {},
        gatewayPriority: request.gatewayPriority ?? 0,
      };
      const attachment: Attachment = { containerId: request.containerId, endpoint, network, held: [], rules: [] };
      this.#attachments.set(endpointId, attachment);
      undo.push(() => void this.#attachments.delete(endpointId));
      const published = this.#publish(attachment, request.ports);
      undo.push(() => this.#unpublish(attachment));
      // The rules are made while the link is; whichever fails, both have ended before anything is undone.
      const named = summary.hasNames ? this.#name(attachment, request.nameservers ?? []) : undefined;
      undo.push(() => this.#resolvers.leave(request.containerId, endpoint));
      const results = await Promise.allSettled([this.#link(attachment, undo), published, named]);
      for (const result of results) if (result.status === 'rejected') throw result.reason;
      return { endpoint, ports: attachment.held.map(({ port }) => port) };
    } catch (error) {
      for (const step of undo.toReversed()) {
        try {
          await step();
        } catch (failure) {
          this.options.log.error({ err: failure, container: request.containerId }, 'undoing a network endpoint');
        }
      }
      throw error;
    }
  }

  /** Makes the link and configures the container's end. */
  async #link({ containerId, endpoint, network: { medium } }: Attachment, undo: Undo[]): Promise<void> {
    const inside = this.#inside(containerId);
    const { interfaceName } = endpoint;
    const hostName = hostLink(endpoint.endpointId);
    const netnsFd = openSync(this.sandboxPath(containerId), 'r');
    try {
      undo.push(() => this.#unplug(containerId, interfaceName));
      await medium.plug({ hostName, name: interfaceName, mac: Buffer.from(endpoint.macAddress.replaceAll(/[:-]/g, ''), 'hex'), netnsFd });
      const index = inside.indexOf(interfaceName);
      if (index === undefined) throw internal(`interface ${interfaceName} vanished from the namespace`);
      await inside.configure(index, {
        addresses: [
          { ip: endpoint.ipv4, prefixLength: endpoint.ipv4PrefixLength },
          { ip: endpoint.ipv6, prefixLength: endpoint.ipv6PrefixLength },
        ].filter(({ ip }) => ip !== ''),
        gateways: this.#waysOut(containerId)
          .filter((way) => way.endpoint === endpoint)
          .map(({ gateway }) => gateway),
        linkLocal: endpoint.ipv6 !== '' || medium.mtu < IPV6_MIN_MTU,
      });
    } finally {
      closeSync(netnsFd);
      inside.close();
    }
  }

  /** A socket inside a sandbox, which the caller closes. */
  #inside(containerId: string): Netlink {
    const inside = this.#insides.get(containerId) ?? inNetns(this.sandboxPath(containerId), () => new Netlink());
    this.#insides.delete(containerId);
    return inside;
  }

  #freeInterface(containerId: string, prefix: string): string {
    const used = new Set([...this.#attachments.values()].filter((attachment) => attachment.containerId === containerId).map(({ endpoint }) => endpoint.interfaceName));
    for (let number = 0; ; number++) if (!used.has(`${prefix}${number}`)) return `${prefix}${number}`;
  }

  #name({ containerId, endpoint, network }: Attachment, nameservers: readonly string[]): Promise<void> {
    return this.#resolvers.join({ containerId, netnsPath: this.sandboxPath(containerId), endpoint, internal: network.summary.internal, nameservers });
  }

  /** The gateway of each family that a container has, and the endpoint that it is reached over. */
  #waysOut(containerId: string): { readonly endpoint: Endpoint; readonly gateway: string }[] {
    const ranked = [...this.#attachments.values()]
      .filter((attachment) => attachment.containerId === containerId)
      .map(({ endpoint }) => endpoint)
      .sort((a, b) => compareWaysOut({ name: a.networkName, gatewayPriority: a.gatewayPriority }, { name: b.networkName, gatewayPriority: b.gatewayPriority }));
    return ([4, 6] as const).flatMap((family) => {
      for (const endpoint of ranked) {
        const gateway = this.#gateway(endpoint, family);
        if (gateway !== '') return [{ endpoint, gateway }];
      }
      return [];
    });
  }

  /** Where a family leaves over an endpoint: an address, the unspecified one for the link itself, '' for nowhere. */
  #gateway({ endpointId, gateway, ipv4, ipv6, ipv6Gateway }: Endpoint, family: Family): string {
    const [own, next, unspecified] = family === 4 ? [ipv4, gateway, '0.0.0.0'] : [ipv6, ipv6Gateway, '::'];
    return next === '' && own !== '' && this.#attachments.get(endpointId)?.network.onLink === true ? unspecified : next;
  }

  /** Deletes a link inside a sandbox, and so its other end. */
  async #unplug(containerId: string, interfaceName: string): Promise<void> {
    const inside = this.#inside(containerId);
    try {
      await inside.deleteLinks([interfaceName]);
    } finally {
      inside.close();
    }
  }

  async publish({ endpointId }: Endpoint, ports: readonly PortRequest[]): Promise<readonly PublishedPort[]> {
    const attachment = this.#attachments.get(endpointId);
    if (!attachment) return [];
    try {
      await this.#publish(attachment, ports);
    } catch (error) {
      await this.#unpublish(attachment);
      throw error;
    }
    return attachment.held.map(({ port }) => port);
  }

  async unpublish({ endpointId }: Endpoint): Promise<void> {
    const attachment = this.#attachments.get(endpointId);
    if (attachment) await this.#unpublish(attachment);
  }

  rename(containerId: string, endpoint: Endpoint): void {
    this.#resolvers.rename(containerId, endpoint);
  }

  async #publish(attachment: Attachment, ports: readonly PortRequest[]): Promise<void> {
    const { publishing } = attachment.network;
    if (!publishing || ports.length === 0) return;
    attachment.held = this.#hold(attachment.endpoint, publishing, ports);
    attachment.rules = rulesOf(attachment.held, publishing);
    await this.options.firewall.publish(attachment.rules);
  }

  async #unpublish(attachment: Attachment): Promise<void> {
    const { held, rules } = attachment;
    attachment.held = [];
    attachment.rules = [];
    for (const port of held) port.release();
    await this.options.firewall.unpublish(rules);
  }

  /** Holds every wanted port or none. */
  #hold({ endpointId, ipv4, ipv6, dnsNames }: Endpoint, { address }: Publishing, ports: readonly PortRequest[]): HeldPort[] {
    const held: HeldPort[] = [];
    try {
      for (const port of ports) held.push(...holdPort({ ...port, hostIp: port.hostIp || address }, { ipv4, ipv6 }, this.options.userlandProxy));
      return held;
    } catch (error) {
      for (const port of held) port.release();
      throw new EngineError('internal', `failed to set up container networking: driver failed programming external connectivity on endpoint ${dnsNames[0] ?? ''} (${endpointId}): ${messageOf(error)}`, {
        cause: error,
        code: 'PORT_IN_USE',
      });
    }
  }

  /** Frees addresses and ports. The link goes with its namespace, which the kernel tears down in its own time. */
  detach(containerId: string, { endpointId }: Endpoint): void {
    const attachment = this.#attachments.get(endpointId);
    if (!attachment) return;
    this.#attachments.delete(endpointId);
    const { network, endpoint } = attachment;
    this.#resolvers.leave(containerId, endpoint);
    network.space.release(endpoint.ipv4);
    network.space.release(endpoint.ipv6);
    // Nobody waits for the rules.
    this.#unpublish(attachment).catch((error: unknown) => this.options.log.error({ err: error, container: containerId }, 'rules of published ports are not removed'));
    if (this.#leaving.push(hostLink(endpointId)) === 1) setTimeout(() => this.#sweep(), TEARDOWN_MS).unref();
  }

  /** A namespace lives on while a process of another container shares it: its links must not keep addresses that are free. */
  #sweep(): void {
    const names = this.#leaving.filter((name) => this.options.netlink.indexOf(name) !== undefined);
    this.#leaving = [];
    this.options.netlink.deleteLinks(names).catch((error: unknown) => this.options.log.error({ err: error }, 'links of containers that are gone'));
  }

  /** As `detach`, from a sandbox that stays. */
  async disconnect(containerId: string, endpoint: Endpoint): Promise<void> {
    const before = this.#waysOut(containerId);
    this.detach(containerId, endpoint);
    await this.#unplug(containerId, endpoint.interfaceName);
    const changed = this.#waysOut(containerId).filter(({ endpoint: next, gateway }) => !before.some((way) => way.endpoint === next && way.gateway === gateway));
    if (changed.length === 0) return;
    const inside = this.#inside(containerId);
    try {
      for (const { endpoint: next, gateway } of changed) {
        const index = inside.indexOf(next.interfaceName);
        if (index !== undefined) await inside.configure(index, { addresses: [], gateways: [gateway], linkLocal: true });
      }
    } finally {
      inside.close();
    }
  }

  /** Addresses and ports of a dead daemon are free; the link is what stays. */
  async discard(endpointId: string): Promise<void> {
    await this.options.netlink.deleteLinks([hostLink(endpointId)]);
  }

  /** Takes over what a container that survived the daemon has. */
  async adopt(network: AttachableNetwork, containerId: string, endpoint: Endpoint, ports: readonly PublishedPort[], nameservers: readonly string[]): Promise<void> {
    if (this.#attachments.has(endpoint.endpointId)) return;
    const { space, publishing } = network;
    const report = (error: unknown, message: string): void => this.options.log.error({ err: error, container: containerId }, message);
    for (const [family, address] of [[4, endpoint.ipv4], [6, endpoint.ipv6]] as const) {
      if (address === '') continue;
      try {
        space.lease(family, address);
      } catch (error) {
        report(error, 'the address of a running container is not of its network any more');
      }
    }
    const held: HeldPort[] = [];
    for (const port of publishing ? ports : []) {
      try {
        held.push(...holdPort(port, endpoint, this.options.userlandProxy));
      } catch (error) {
        report(error, 'a published port was taken while the daemon was away');
      }
    }
    const rules = publishing ? rulesOf(held, publishing) : [];
    const attachment: Attachment = { containerId, endpoint, network, held, rules };
    this.#attachments.set(endpoint.endpointId, attachment);
    const named = network.summary.hasNames ? this.#name(attachment, nameservers) : undefined;
    await Promise.all([this.options.firewall.publish(rules), named?.catch((error: unknown) => report(error, 'a running container has no name server'))]);
  }

  /** Releases what is this process's own; containers keep their links. */
  close(): void {
    for (const { held } of this.#attachments.values()) for (const port of held) port.release();
    for (const inside of this.#insides.values()) inside.close();
    this.#resolvers.close();
  }
}

/** Of several ways out the first one in this order is taken. */
export function compareWaysOut(a: WayOut, b: WayOut): number {
  return b.gatewayPriority - a.gatewayPriority || (a.name < b.name ? -1 : 1);
}

function staticAddressRefused({ name }: NetworkSummary): EngineError {
  return invalid(
    name === 'bridge' ? 'user specified IP address is supported on user defined networks only' : 'user specified IP address is supported only when connecting to networks with user configured subnets',
    { code: 'STATIC_ADDRESS' },
  );
}

function hostLink(endpointId: string): string {
  return `veth${endpointId.slice(0, 7)}`;
}

/** Translations of the ports that the kernel can translate: both addresses of one family. */
function rulesOf(held: readonly HeldPort[], { link }: Publishing): PortRule[] {
  return held
    .filter(({ port, containerIp }) => port.hostIp.includes(':') === containerIp.includes(':'))
    .map(({ port, containerIp }) => ({ bridge: link, protocol: port.protocol, hostIp: port.hostIp, hostPort: port.hostPort, containerIp, containerPort: port.containerPort }));
}

/** The locally administered address that belongs to an IPv4 address: peers' ARP caches stay right when it is reused. */
function macFor(address: string): string {
  const bytes = address === '' ? randomBytes(4) : Buffer.from(address.split('.').map(Number));
  return `02:42:${bytes.toString('hex').replaceAll(/(..)(?=.)/g, '$1:')}`;
}
