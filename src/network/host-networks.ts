/** The networks of this host: the default bridge, `host` and `none`; sandboxes and endpoints of containers. */
import { randomBytes } from 'node:crypto';
import { closeSync, openSync } from 'node:fs';
import { join } from 'node:path';
import { EngineError, internal, messageOf, notFound } from '../errors/engine-error.js';
import type { Logger } from '../ports/logger.js';
import type { AttachRequest, AttachResult, Endpoint, NetworkDriver, NetworkSummary, PublishedPort } from '../ports/network.js';
import { Netlink } from '../sys/route-netlink.js';
import { createNetns, inNetns, listNetns, removeNetns } from '../sys/netns.js';
import { Bridge, type BridgeOptions } from './default-bridge.js';
import { applyScript, portRules, restoreScript } from './firewall.js';
import { readHostDns, type HostDns } from './host-dns.js';
import { holdPort, type HeldPort } from './port-holder.js';
import { formatSubnet } from './subnet.js';

export interface NetworkOptions {
  /** Undefined: no default bridge (`--bridge none`). */
  readonly bridge: BridgeOptions | undefined;
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
  readonly address: string;
  readonly held: readonly HeldPort[];
}

export class HostNetworks implements NetworkDriver {
  readonly #netlink = new Netlink();
  readonly #attachments = new Map<string, Attachment>();
  /** Sockets inside sandboxes whose first endpoint is still to be configured. */
  readonly #insides = new Map<string, Netlink>();
  #bridge: Bridge | undefined;
  #networks: readonly NetworkSummary[] = [];
  #dns: { readonly at: number; readonly value: Promise<HostDns> } | undefined;

  constructor(private readonly options: NetworkOptions) {}

  async start(): Promise<void> {
    const ids = await this.#identities();
    const { bridge: wanted } = this.options;
    const bridge = wanted && (await Bridge.open(wanted, this.#netlink, ids.made === wanted.name));
    if (bridge?.isOurs && ids.made !== bridge.options.name) await this.options.identities.write({ ...ids, made: bridge.options.name });
    this.#bridge = bridge;
    const plain = { internal: false, enableIpv6: false, subnets: [], options: {}, labels: {} };
    this.#networks = [
      ...(bridge ? [{ ...plain, ...ids.bridge, name: 'bridge', driver: 'bridge', subnets: [{ subnet: formatSubnet(bridge.subnet), gateway: bridge.gateway }], options: bridgeLabels(bridge.options) }] : []),
      { ...plain, ...ids.host, name: 'host', driver: 'host' },
      { ...plain, ...ids.none, name: 'none', driver: 'null' },
    ];
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
    const isIdle = this.#attachments.size === 0;
    for (const { held } of this.#attachments.values()) for (const port of held) port.release();
    await this.#bridge?.close(isIdle);
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

  /** Namespaces that no container of this daemon has: what a crash left. */
  sandboxIds(): string[] {
    return listNetns(this.options.netnsRoot);
  }

  sandboxPath(containerId: string): string {
    return join(this.options.netnsRoot, containerId);
  }

  async createSandbox(containerId: string): Promise<string> {
    const path = this.sandboxPath(containerId);
    removeNetns(path);
    const inside = createNetns(path, () => new Netlink());
    try {
      await inside.configureLink(LOOPBACK_INDEX, undefined);
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
    const endpointId = randomBytes(32).toString('hex');
    const inside = this.#insides.get(request.containerId) ?? inNetns(request.netnsPath, () => new Netlink());
    this.#insides.delete(request.containerId);
    if (request.ipv4 !== undefined) bridge.pool.reserve(request.ipv4);
    const address = request.ipv4 ?? bridge.pool.allocate();
    let held: HeldPort[] = [];
    try {
      const mac = request.macAddress ?? macFor(address);
      held = await this.#hold(request, address, endpointId);
      const netnsFd = openSync(request.netnsPath, 'r');
      try {
        await this.#netlink.createVeth({
          name: `veth${endpointId.slice(0, 7)}`,
          bridgeIndex: bridge.index,
          mtu: bridge.options.mtu,
          peer: { name: request.interfaceName, mac: Buffer.from(mac.replaceAll(':', ''), 'hex'), netnsFd },
        });
      } finally {
        closeSync(netnsFd);
      }
      const link = await inside.findLink(request.interfaceName);
      if (!link) throw internal(`interface ${request.interfaceName} vanished from the namespace`);
      await inside.configureLink(link.index, { ip: address, prefixLength: bridge.subnet.prefixLength }, bridge.gateway);
      const endpoint: Endpoint = {
        networkId: network.id,
        networkName: network.name,
        endpointId,
        macAddress: mac,
        ipv4: address,
        ipv4PrefixLength: bridge.subnet.prefixLength,
        gateway: bridge.gateway,
        ipv6: '',
        ipv6PrefixLength: 0,
        ipv6Gateway: '',
        aliases: request.aliases,
        dnsNames: request.dnsNames,
      };
      await this.#publish(held, address, 'append');
      this.#attachments.set(request.containerId, { address, held });
      return { endpoint, ports: held.map(({ port }) => port) };
    } catch (error) {
      for (const port of held) port.release();
      bridge.pool.release(address);
      await this.#netlink.deleteLink(`veth${endpointId.slice(0, 7)}`).catch(() => false);
      throw error;
    } finally {
      inside.close();
    }
  }

  /** Holds every wanted port or none. */
  async #hold(request: AttachRequest, address: string, endpointId: string): Promise<HeldPort[]> {
    const held: HeldPort[] = [];
    try {
      for (const port of request.ports) {
        held.push(await holdPort({ ...port, hostIp: port.hostIp || this.options.publishIp }, address));
      }
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

  async #publish(held: readonly HeldPort[], address: string, edit: 'append' | 'remove'): Promise<void> {
    const bridge = this.#bridge;
    if (held.length === 0 || !bridge?.options.iptables) return;
    await applyScript(restoreScript({ [edit]: held.flatMap(({ port }) => portRules(bridge.options.name, address, port)) }));
  }

  async detach(containerId: string, endpoint: Endpoint, ports: readonly PublishedPort[]): Promise<void> {
    const attachment = this.#attachments.get(containerId);
    this.#attachments.delete(containerId);
    // The link goes with the namespace, which the kernel tears down in its own time.
    try {
      if (attachment) {
        for (const port of attachment.held) port.release();
        await this.#publish(attachment.held, endpoint.ipv4, 'remove');
      } else if (ports.length > 0) {
        // Of a run before this daemon's: the rules went when the chains were made anew at start.
        this.options.log.debug({ container: containerId }, 'ports of an earlier run are gone already');
      }
    } finally {
      if (attachment && endpoint.ipv4 !== '') this.#bridge?.pool.release(endpoint.ipv4);
    }
  }

  async adopt(containerId: string, endpoint: Endpoint, ports: readonly PublishedPort[]): Promise<void> {
    if (!this.#bridge || this.resolve(endpoint.networkId).driver !== 'bridge') return;
    this.#bridge.pool.reserve(endpoint.ipv4);
    const held: HeldPort[] = [];
    for (const port of ports) {
      try {
        held.push(await holdPort(port, endpoint.ipv4));
      } catch (error) {
        this.options.log.error({ err: error, container: containerId, port: port.hostPort }, 'a published port was taken while the daemon was away');
      }
    }
    this.#attachments.set(containerId, { address: endpoint.ipv4, held });
    await this.#publish(held, endpoint.ipv4, 'append');
  }

  hostDns(): Promise<HostDns> {
    // A start must not wait for a file that hardly ever changes, nor use one that changed a while ago.
    if (!this.#dns || performance.now() - this.#dns.at > DNS_CACHE_MS) this.#dns = { at: performance.now(), value: readHostDns() };
    return this.#dns.value;
  }
}

const LOOPBACK_INDEX = 1;
const DNS_CACHE_MS = 2000;

/** The locally administered address that belongs to an IPv4 address: peers' ARP caches stay right when it is reused. */
function macFor(address: string): string {
  return ['02', '42', ...address.split('.').map((part) => Number(part).toString(16).padStart(2, '0'))].join(':');
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
