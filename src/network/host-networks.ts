/** The networks of this host: the default bridge, `host` and `none`; sandboxes and endpoints of containers. */
import { randomBytes } from 'node:crypto';
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { EngineError, internal, invalid, messageOf, notFound } from '../errors/engine-error.js';
import type { Logger } from '../ports/logger.js';
import type { AttachRequest, AttachResult, Endpoint, NetworkDriver, NetworkSummary, PublishedPort } from '../ports/network.js';
import { createNetns, inNetns, listNetns, removeNetns } from '../sys/netns.js';
import { Netlink } from '../sys/route-netlink.js';
import { Bridge } from './bridge.js';
import { planDefaultBridge, type BridgeOptions } from './default-bridge.js';
import type { PortRule } from './firewall-rules.js';
import { Firewall } from './firewall.js';
import { enableForwarding, routeLoopback } from './forwarding.js';
import type { PoolOption } from './free-subnet.js';
import { readHostDns, type HostDns } from './host-dns.js';
import { holdPort, type HeldPort } from './port-holder.js';
import { formatSubnet, type Family } from './subnet.js';

export interface NetworkOptions {
  /** Undefined: no default bridge (`--bridge none`). */
  readonly bridge: BridgeOptions | undefined;
  readonly iptables: boolean;
  readonly ip6tables: boolean;
  readonly ipForward: boolean;
  readonly ipForwardNoDrop: boolean;
  readonly userlandProxy: boolean;
  readonly addressPools: readonly PoolOption[];
  /** Host address for published ports that name none. */
  readonly publishIp: string;
  /** Directory of the namespaces' mounts. */
  readonly netnsRoot: string;
  readonly log: Logger;
  /** Where the identities of the predefined networks are kept. */
  readonly identities: { read(): Promise<unknown>; write(value: unknown): Promise<void> };
}

interface Identity {
  readonly id: string;
  readonly created: string;
}
type Identities = Readonly<Record<'bridge' | 'host' | 'none', Identity>> & {
  /** The bridge that this daemon made and must take away again, also after a crash. */
  readonly made?: string;
};

interface Attachment {
  readonly bridge: Bridge;
  readonly held: readonly HeldPort[];
  readonly rules: readonly PortRule[];
}

type Undo = () => void | Promise<void>;

export class HostNetworks implements NetworkDriver {
  readonly #netlink = new Netlink();
  readonly #firewall: Firewall;
  /** By endpoint ID. */
  readonly #attachments = new Map<string, Attachment>();
  /** Sockets inside sandboxes whose first endpoint is still to be configured. */
  readonly #insides = new Map<string, Netlink>();
  #bridge: Bridge | undefined;
  #isBridgeOurs = false;
  #networks: readonly NetworkSummary[] = [];
  #dns: { readonly at: number; readonly value: Promise<HostDns> } | undefined;
  #disowning: NodeJS.Timeout | undefined;

  constructor(private readonly options: NetworkOptions) {
    const families: readonly Family[] = !options.iptables ? [] : options.ip6tables ? [4, 6] : [4];
    this.#firewall = new Firewall({ tag: options.bridge?.name ?? 'none', families, userlandProxy: options.userlandProxy, log: options.log });
  }

  async start(): Promise<void> {
    const [ids] = await Promise.all([this.#identities(), this.#firewall.open()]);
    const { bridge: wanted } = this.options;
    if (wanted) await this.#openBridge(wanted, ids);
    const plain = { internal: false, enableIpv6: false, subnets: [], options: {}, labels: {} };
    this.#networks = [
      ...(wanted && this.#bridge
        ? [
            {
              ...plain,
              ...ids.bridge,
              name: 'bridge',
              driver: 'bridge',
              enableIpv6: wanted.ipv6,
              subnets: this.#bridge.plan.addresses.map(({ subnet, gateway }) => ({ subnet: formatSubnet(subnet), gateway })),
              options: bridgeLabels(wanted),
            },
          ]
        : []),
      { ...plain, ...ids.host, name: 'host', driver: 'host' },
      { ...plain, ...ids.none, name: 'none', driver: 'null' },
    ];
    this.#disowning = setTimeout(() => {
      this.#firewall.disown().catch((error: unknown) => this.options.log.error({ err: error }, 'ports of an earlier run stay open'));
    }, ADOPTION_MS).unref();
  }

  async #openBridge(wanted: BridgeOptions, ids: Identities): Promise<void> {
    const existing = (await this.#netlink.links()).find(({ name }) => name === wanted.name);
    this.#isBridgeOurs = !existing || ids.made === wanted.name;
    const plan = await planDefaultBridge(wanted, this.options.addressPools, this.#netlink, existing, ids.bridge.id);
    // Noted before it is made: a crash in between must not leave a bridge that nobody owns.
    if (this.#isBridgeOurs && ids.made !== wanted.name) await this.options.identities.write({ ...ids, made: wanted.name });
    const bridge = await Bridge.open(plan, this.#netlink, existing, this.#isBridgeOurs);
    await this.#firewall.setBridge(bridge.rules);
    // After the rules that keep containers away from the host's own services.
    if (!this.options.userlandProxy && this.options.iptables) await routeLoopback(wanted.name);
    if (this.options.ipForward) {
      for (const family of bridge.families) await enableForwarding(family, !this.options.ipForwardNoDrop && this.options.iptables && (family === 4 || this.options.ip6tables));
    }
    this.#bridge = bridge;
  }

  async #identities(): Promise<Identities> {
    const stored = (await this.options.identities.read()) as Identities | undefined;
    if (stored) return stored;
    const made = (): Identity => ({ id: randomBytes(32).toString('hex'), created: new Date().toISOString() });
    const fresh: Identities = { bridge: made(), host: made(), none: made() };
    await this.options.identities.write(fresh);
    return fresh;
  }

  async stop(): Promise<void> {
    clearTimeout(this.#disowning);
    const isIdle = this.#attachments.size === 0;
    for (const { held } of this.#attachments.values()) for (const port of held) port.release();
    if (isIdle) {
      await this.#firewall.remove();
      if (this.#bridge && this.#isBridgeOurs) await this.#netlink.deleteLinks([this.#bridge.plan.link]);
    }
    this.#firewall.close();
    for (const inside of this.#insides.values()) inside.close();
    this.#netlink.close();
  }

  list(): readonly NetworkSummary[] {
    return this.#networks;
  }

  resolve(nameOrId: string): NetworkSummary {
    const found =
      this.#networks.find(({ id }) => id === nameOrId) ??
      this.#networks.find(({ name }) => name === nameOrId) ??
      (nameOrId === '' ? undefined : this.#networks.find(({ id }) => id.startsWith(nameOrId)));
    if (!found) throw notFound(`network ${nameOrId} not found`, { code: 'NO_SUCH_NETWORK' });
    return found;
  }

  /** Namespaces that are there, by container: those of containers that do not run were left by a crash. */
  sandboxIds(): string[] {
    return listNetns(this.options.netnsRoot);
  }

  sandboxPath(containerId: string): string {
    return join(this.options.netnsRoot, containerId);
  }

  async createSandbox(containerId: string): Promise<string> {
    const path = this.sandboxPath(containerId);
    await this.removeSandbox(containerId);
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

  async removeSandbox(containerId: string): Promise<void> {
    this.#insides.get(containerId)?.close();
    this.#insides.delete(containerId);
    removeNetns(this.sandboxPath(containerId));
    return Promise.resolve();
  }

  async attach(request: AttachRequest): Promise<AttachResult> {
    const network = this.resolve(request.network);
    const bridge = this.#bridge;
    if (network.driver !== 'bridge' || !bridge) throw internal(`network ${network.name} has no bridge to attach to`);
    if (request.ipv4 !== undefined || request.ipv6 !== undefined) throw invalid('user specified IP address is supported on user defined networks only', { code: 'STATIC_ADDRESS' });
    const endpointId = randomBytes(32).toString('hex');
    const undo: Undo[] = [];
    try {
      const ipv4 = bridge.allocate(4, request.ipv4);
      undo.push(() => bridge.release(ipv4));
      const ipv6 = bridge.allocate(6, request.ipv6);
      undo.push(() => bridge.release(ipv6));
      const endpoint: Endpoint = {
        networkId: network.id,
        networkName: network.name,
        endpointId,
        macAddress: request.macAddress ?? macFor(ipv4),
        ipv4,
        ipv4PrefixLength: bridge.prefixLength(4),
        gateway: bridge.gateway(4),
        ipv6,
        ipv6PrefixLength: bridge.prefixLength(6),
        ipv6Gateway: bridge.gateway(6),
        aliases: request.aliases,
        dnsNames: request.dnsNames,
      };
      const held = this.#hold(request, endpoint);
      undo.push(() => {
        for (const port of held) port.release();
      });
      const rules = rulesOf(held, bridge);
      const published = this.#firewall.publish(rules);
      undo.push(() => this.#firewall.unpublish(rules));
      // The rules are made while the link is; whichever fails, both have ended before anything is undone.
      const [linked, open] = await Promise.allSettled([this.#link(request, bridge, endpoint, undo), published]);
      for (const result of [linked, open]) if (result.status === 'rejected') throw result.reason;
      this.#attachments.set(endpointId, { bridge, held, rules });
      return { endpoint, ports: held.map(({ port }) => port) };
    } catch (error) {
      for (const step of undo.toReversed()) {
        await Promise.resolve(step()).catch((failure: unknown) => this.options.log.error({ err: failure, container: request.containerId }, 'undoing a network endpoint'));
      }
      throw error;
    }
  }

  /** Makes the pair of links and configures the container's end. */
  async #link(request: AttachRequest, bridge: Bridge, endpoint: Endpoint, undo: Undo[]): Promise<void> {
    const inside = this.#insides.get(request.containerId) ?? inNetns(request.netnsPath, () => new Netlink());
    this.#insides.delete(request.containerId);
    const name = hostLink(endpoint.endpointId);
    const netnsFd = openSync(request.netnsPath, 'r');
    try {
      undo.push(() => this.#netlink.deleteLinks([name]));
      await this.#netlink.createVeth({
        name,
        bridgeIndex: bridge.index,
        mtu: bridge.plan.mtu,
        // Frames come back to where they were sent from when the host translates a container's way to itself.
        hairpin: !this.options.userlandProxy,
        isolated: !bridge.plan.interContainer,
        peer: { name: request.interfaceName, mac: Buffer.from(endpoint.macAddress.replaceAll(':', ''), 'hex'), netnsFd },
      });
      const index = inside.indexOf(request.interfaceName);
      if (index === undefined) throw internal(`interface ${request.interfaceName} vanished from the namespace`);
      await inside.configure(index, {
        addresses: [
          { ip: endpoint.ipv4, prefixLength: endpoint.ipv4PrefixLength },
          { ip: endpoint.ipv6, prefixLength: endpoint.ipv6PrefixLength },
        ].filter(({ ip }) => ip !== ''),
        gateways: [endpoint.gateway, endpoint.ipv6Gateway].filter((gateway) => gateway !== ''),
        linkLocal: endpoint.ipv6 !== '',
      });
    } finally {
      closeSync(netnsFd);
      inside.close();
    }
  }

  /** Holds every wanted port or none. */
  #hold(request: AttachRequest, { endpointId, ipv4, ipv6 }: Endpoint): HeldPort[] {
    const held: HeldPort[] = [];
    const anywhere = this.options.publishIp === '0.0.0.0' ? '' : this.options.publishIp;
    try {
      for (const port of request.ports) held.push(...holdPort({ ...port, hostIp: port.hostIp || anywhere }, { ipv4, ipv6 }, this.options.userlandProxy));
      return held;
    } catch (error) {
      for (const port of held) port.release();
      const name = request.dnsNames[0] ?? request.containerId;
      throw new EngineError('internal', `failed to set up container networking: driver failed programming external connectivity on endpoint ${name} (${endpointId}): ${messageOf(error)}`, {
        cause: error,
        code: 'PORT_IN_USE',
      });
    }
  }

  async detach(containerId: string, endpoint: Endpoint, _ports: readonly PublishedPort[]): Promise<void> {
    const attachment = this.#attachments.get(endpoint.endpointId);
    if (!attachment) return;
    this.#attachments.delete(endpoint.endpointId);
    const { bridge, held, rules } = attachment;
    for (const port of held) port.release();
    bridge.release(endpoint.ipv4);
    bridge.release(endpoint.ipv6);
    // The link goes with the namespace, which the kernel tears down in its own time; nobody waits for the rules either.
    this.#firewall.unpublish(rules).catch((error: unknown) => this.options.log.error({ err: error, container: containerId }, 'rules of published ports are not removed'));
    return Promise.resolve();
  }

  async adopt(containerId: string, endpoint: Endpoint, ports: readonly PublishedPort[]): Promise<void> {
    const bridge = this.#bridge;
    if (!bridge || this.#attachments.has(endpoint.endpointId) || this.resolve(endpoint.networkId).driver !== 'bridge') return;
    const report = (error: unknown, message: string): void => this.options.log.error({ err: error, container: containerId }, message);
    for (const [family, address] of [[4, endpoint.ipv4], [6, endpoint.ipv6]] as const) {
      if (address === '') continue;
      try {
        bridge.allocate(family, address);
      } catch (error) {
        report(error, 'the address of a running container is not of its network any more');
      }
    }
    const held: HeldPort[] = [];
    for (const port of ports) {
      try {
        held.push(...holdPort(port, endpoint, this.options.userlandProxy));
      } catch (error) {
        report(error, 'a published port was taken while the daemon was away');
      }
    }
    const rules = rulesOf(held, bridge);
    this.#attachments.set(endpoint.endpointId, { bridge, held, rules });
    await this.#firewall.publish(rules);
  }

  hostDns(): Promise<HostDns> {
    // A start must not wait for a file that hardly ever changes, nor use one that changed a while ago.
    if (!this.#dns || performance.now() - this.#dns.at > DNS_CACHE_MS) this.#dns = { at: performance.now(), value: readHostDns() };
    return this.#dns.value;
  }
}

const LOOPBACK_INDEX = 1;
const DNS_CACHE_MS = 2000;
/** How long after the start ports of containers that survived the daemon stay open without having been claimed. */
const ADOPTION_MS = 10_000;

function hostLink(endpointId: string): string {
  return `veth${endpointId.slice(0, 7)}`;
}

/** Translations of the ports that the kernel can translate: both addresses of one family. */
function rulesOf(held: readonly HeldPort[], { plan }: Bridge): PortRule[] {
  return held
    .filter(({ port, containerIp }) => port.hostIp.includes(':') === containerIp.includes(':'))
    .map(({ port, containerIp }) => ({ bridge: plan.link, protocol: port.protocol, hostIp: port.hostIp, hostPort: port.hostPort, containerIp, containerPort: port.containerPort }));
}

/** The locally administered address that belongs to an IPv4 address: peers' ARP caches stay right when it is reused. */
function macFor(address: string): string {
  const bytes = address === '' ? randomBytes(4) : Buffer.from(address.split('.').map(Number));
  return `02:42:${bytes.toString('hex').replaceAll(/(..)(?=.)/g, '$1:')}`;
}

/** Options of the default bridge under the names that clients read. */
function bridgeLabels(options: BridgeOptions): Record<string, string> {
  return {
    'com.docker.network.bridge.default_bridge': 'true',
    'com.docker.network.bridge.enable_icc': String(options.icc),
    'com.docker.network.bridge.enable_ip_masquerade': String(options.ipMasq),
    'com.docker.network.bridge.host_binding_ipv4': '0.0.0.0',
    'com.docker.network.bridge.name': options.name,
    'com.docker.network.driver.mtu': String(options.mtu),
  };
}
