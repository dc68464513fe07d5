/** The networks of this host: the default bridge, `host`, `none`, and those that users make. */
import { createHash, randomBytes } from 'node:crypto';
import { conflict, forbidden, internal, notFound } from '../errors/engine-error.js';
import type { AttachRequest, AttachResult, Endpoint, NetworkDriver, NetworkRequest, NetworkSummary, PortRequest, PublishedPort } from '../ports/network.js';
import { Netlink } from '../sys/route-netlink.js';
import type { AttachableNetwork } from './attachable-network.js';
import { Bridge } from './bridge.js';
import { planDefaultBridge, type BridgeOptions } from './default-bridge.js';
import { compareWaysOut, Endpoints, type EndpointOptions, type WayOut } from './endpoints.js';
import { Firewall } from './firewall.js';
import { hostSubnets, type PoolOption } from './free-subnet.js';
import { readHostDns, type HostDns } from './host-dns.js';
import { type MakerOptions, NetworkMaker, type OpenOptions } from './network-maker.js';
import { checkRequest, settleNetwork } from './network-plan.js';
import { formatSubnet, parseSubnet, type Family } from './subnet.js';

export interface NetworkOptions extends Omit<EndpointOptions & MakerOptions, 'netlink' | 'firewall'> {
  /** Undefined: no default bridge (`--bridge none`). */
  readonly bridge: BridgeOptions | undefined;
  /** Host address of ports on the default bridge that name none. */
  readonly publishIp: string;
  readonly addressPools: readonly PoolOption[];
  /** Options of new networks by driver. */
  readonly defaultNetworkOptions: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** Name servers for containers that name none; empty: those of the host. Read at each use. */
  readonly nameservers: () => readonly string[];
  /** Where the records of the networks are kept. */
  readonly identities: { read(): Promise<unknown>; write(value: unknown): Promise<void> };
}

interface Identity {
  readonly id: string;
  readonly created: string;
}

/** A network that a user made. */
interface UserNetwork extends OpenOptions {
  readonly summary: NetworkSummary;
}

type Identities = Readonly<Record<'bridge' | 'host' | 'none', Identity>> & {
  /** The default bridge that this daemon made and must take away again, also after a crash. */
  readonly made?: string;
  readonly networks?: readonly UserNetwork[];
};

const PREDEFINED = new Set(['bridge', 'host', 'none', 'default']);
/** Drivers of networks that give a container nothing of its own. */
const LINKLESS = new Set(['host', 'null']);
const DNS_CACHE_MS = 2000;
/** How long after the start ports of containers that survived the daemon stay open without having been claimed. */
const ADOPTION_MS = 10_000;

export class HostNetworks implements NetworkDriver {
  readonly #netlink = new Netlink();
  readonly #firewall: Firewall;
  readonly #endpoints: Endpoints;
  readonly #maker: NetworkMaker;
  /** By network ID: the predefined ones first. */
  readonly #summaries = new Map<string, NetworkSummary>();
  /** Those that containers get links to, by network ID. */
  readonly #attachable = new Map<string, AttachableNetwork>();
  #identities: Identities | undefined;
  /** Networks are made and removed one after another: each looks at what the others have. */
  #turn: Promise<unknown> = Promise.resolve();
  #isBridgeOurs = false;
  #dns: { readonly at: number; readonly value: Promise<HostDns> } | undefined;
  #disowning: NodeJS.Timeout | undefined;

  constructor(private readonly options: NetworkOptions) {
    const families: readonly Family[] = !options.iptables ? [] : options.ip6tables ? [4, 6] : [4];
    this.#firewall = new Firewall({ tag: options.bridge?.name ?? `none-${createHash('sha256').update(options.netnsRoot).digest('hex').slice(0, 8)}`, families, userlandProxy: options.userlandProxy, log: options.log });
    this.#maker = new NetworkMaker({ ...options, netlink: this.#netlink, firewall: this.#firewall });
    this.#endpoints = new Endpoints({ ...options, netlink: this.#netlink, firewall: this.#firewall });
  }

  async start(): Promise<void> {
    const [ids] = await Promise.all([this.#loadIdentities(), this.#firewall.open()]);
    const { bridge: wanted } = this.options;
    if (wanted) await this.#openDefault(wanted, ids);
    for (const summary of [predefined('host', 'host', ids.host), predefined('none', 'null', ids.none)]) this.#summaries.set(summary.id, summary);
    const links = await this.#netlink.links();
    await Promise.all(
      (ids.networks ?? []).map(async (network) => {
        const { summary } = network;
        this.#summaries.set(summary.id, summary);
        if (summary.configOnly) return;
        await this.#maker.open(summary, network, links).then(
          (opened) => this.#attachable.set(summary.id, opened),
          (error: unknown) => this.options.log.error({ err: error, network: summary.name }, 'a network cannot be made again; containers cannot be attached to it'),
        );
      }),
    );
    this.#disowning = setTimeout(() => {
      this.#firewall.disown().catch((error: unknown) => this.options.log.error({ err: error }, 'ports of an earlier run stay open'));
    }, ADOPTION_MS).unref();
  }

  async #openDefault(wanted: BridgeOptions, ids: Identities): Promise<void> {
    const { addressPools, publishIp, userlandProxy } = this.options;
    const existing = (await this.#netlink.links()).find(({ name }) => name === wanted.name);
    this.#isBridgeOurs = !existing || ids.made === wanted.name;
    const plan = await planDefaultBridge(wanted, addressPools, this.#netlink, existing, ids.bridge.id, !userlandProxy);
    // Noted before it is made: a crash in between must not leave a bridge that nobody owns.
    if (this.#isBridgeOurs && ids.made !== wanted.name) await this.#save({ ...ids, made: wanted.name });
    const bridge = await Bridge.open(plan, this.#netlink, existing, this.#isBridgeOurs);
    const subnets = plan.addresses.map(({ subnet, gateway }) => ({ subnet: formatSubnet(subnet), gateway, ipRange: '', auxiliaryAddresses: {} }));
    const summary = { ...predefined('bridge', 'bridge', ids.bridge), enableIpv6: wanted.ipv6, subnets, options: bridgeLabels(wanted, publishIp) };
    this.#summaries.set(summary.id, summary);
    this.#attachable.set(summary.id, await this.#maker.admit(summary, bridge, false));
  }

  async #loadIdentities(): Promise<Identities> {
    const stored = (await this.options.identities.read()) as Identities | undefined;
    if (stored) {
      this.#identities = stored;
      return stored;
    }
    const made = (): Identity => ({ id: randomBytes(32).toString('hex'), created: new Date().toISOString() });
    return this.#save({ bridge: made(), host: made(), none: made() });
  }

  async #save(identities: Identities): Promise<Identities> {
    await this.options.identities.write(identities);
    this.#identities = identities;
    return identities;
  }

  async stop(): Promise<void> {
    clearTimeout(this.#disowning);
    this.#endpoints.close();
    if (this.#endpoints.isIdle) {
      await this.#firewall.remove();
      await this.#netlink.deleteLinks([...this.#attachable.values()].filter((network) => !this.#isForeign(network)).map(({ link }) => link));
    }
    this.#firewall.close();
    this.#netlink.close();
  }

  /** Whether the link on the host is somebody else's. */
  #isForeign({ summary }: AttachableNetwork): boolean {
    if (summary.name === 'bridge') return !this.#isBridgeOurs;
    return this.#loaded().networks?.find((network) => network.summary.id === summary.id)?.foreign === true;
  }

  list(): readonly NetworkSummary[] {
    return [...this.#summaries.values()];
  }

  resolve(nameOrId: string): NetworkSummary {
    const all = [...this.#summaries.values()];
    const found = this.#summaries.get(nameOrId) ?? all.find(({ name }) => name === nameOrId);
    if (found) return found;
    const [first, second] = nameOrId === '' ? [] : all.filter(({ id }) => id.startsWith(nameOrId));
    if (second) throw conflict(`network ${nameOrId} is ambiguous (${all.filter(({ id }) => id.startsWith(nameOrId)).length} matches found based on ID prefix)`, { code: 'AMBIGUOUS_NETWORK' });
    if (!first) throw notFound(`network ${nameOrId} not found`, { code: 'NO_SUCH_NETWORK' });
    return first;
  }

  create(wanted: NetworkRequest): Promise<NetworkSummary> {
    return this.#inTurn(async () => {
      if (PREDEFINED.has(wanted.name)) throw forbidden(`operation is not permitted on predefined ${wanted.name} network `, { code: 'PREDEFINED_NETWORK' });
      const request = wanted.configFrom === '' ? wanted : this.#configured(wanted);
      checkRequest(request);
      if (this.list().some(({ name }) => name === request.name)) throw conflict(`network with name ${request.name} already exists`, { code: 'NETWORK_EXISTS' });
      const id = randomBytes(32).toString('hex');
      const created = new Date().toISOString();
      const chosen = request.subnets.some(({ subnet }) => subnet !== '');
      if (request.configOnly) {
        const summary = { ...request, driver: 'null', id, created, hasNames: false };
        await this.#note({ summary, chosen, foreign: false });
        return summary;
      }
      const host = await hostSubnets(this.#netlink);
      const others = this.list().filter(({ configOnly }) => !configOnly);
      const summary = settleNetwork(request, id, created, {
        pools: this.options.addressPools,
        networks: others.flatMap(({ subnets }) => subnets.map(({ subnet }) => parseSubnet(subnet, 'subnet'))),
        host: [...host.addresses, ...host.routes],
        defaultOptions: this.options.defaultNetworkOptions[request.driver] ?? {},
      });
      const links = await this.#netlink.links();
      const network = { summary, chosen, foreign: this.#maker.isForeign(summary, links, others) };
      const before = this.#loaded();
      // Noted before it is made, as the default bridge is.
      await this.#note(network);
      try {
        this.#attachable.set(id, await this.#maker.open(summary, network, links));
      } catch (error) {
        this.#summaries.delete(id);
        await this.#save(before);
        throw error;
      }
      return summary;
    });
  }

  async #note(network: UserNetwork): Promise<void> {
    const before = this.#loaded();
    await this.#save({ ...before, networks: [...(before.networks ?? []), network] });
    this.#summaries.set(network.summary.id, network.summary);
  }

  /** A request with the configuration that it takes over from another network. */
  #configured(request: NetworkRequest): NetworkRequest {
    const source = this.list().find(({ name, id, configOnly }) => configOnly && (name === request.configFrom || id === request.configFrom));
    if (!source) throw notFound(`configuration network "${request.configFrom}" does not exist`, { code: 'NO_SUCH_NETWORK' });
    if (request.subnets.length > 0 || Object.keys(request.options).length > 0 || Object.keys(request.labels).length > 0 || request.enableIpv6) {
      throw forbidden('user supplied configurations are not supported if the network depends on a configuration network', { code: 'CONFIG_FROM' });
    }
    const { enableIpv4, enableIpv6, ipam, subnets, options, labels } = source;
    return { ...request, enableIpv4, enableIpv6, ipam, subnets, options, labels, configFrom: source.name };
  }

  remove(nameOrId: string): Promise<NetworkSummary> {
    return this.#inTurn(async () => {
      const summary = this.resolve(nameOrId);
      if (PREDEFINED.has(summary.name)) throw forbidden(`${summary.name} is a pre-defined network and cannot be removed`, { code: 'PREDEFINED_NETWORK' });
      if (this.#endpoints.of(summary.id).length > 0) throw forbidden(`error while removing network: network ${summary.name} id ${summary.id} has active endpoints`, { code: 'NETWORK_IN_USE' });
      const user = this.list().find(({ configFrom }) => configFrom === summary.name);
      if (summary.configOnly && user) throw forbidden(`configuration network "${summary.name}" is in use`, { code: 'NETWORK_IN_USE' });
      const network = this.#attachable.get(summary.id);
      // Nobody is attached while it goes.
      this.#attachable.delete(summary.id);
      if (network) {
        const isShared = [...this.#attachable.values()].some(({ link }) => link === network.link);
        await this.#maker.close(network, isShared || this.#isForeign(network));
      }
      const before = this.#loaded();
      await this.#save({ ...before, networks: (before.networks ?? []).filter((each) => each.summary.id !== summary.id) });
      this.#summaries.delete(summary.id);
      return summary;
    });
  }

  #loaded(): Identities {
    if (!this.#identities) throw internal('networks are used before they are started');
    return this.#identities;
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const run = this.#turn.then(work);
    this.#turn = run.catch(() => undefined);
    return run;
  }

  /** Namespaces that are there, by container: those of containers that do not run were left by a crash. */
  sandboxIds(): string[] {
    return this.#endpoints.sandboxIds();
  }

  sandboxPath(containerId: string): string {
    return this.#endpoints.sandboxPath(containerId);
  }

  createSandbox(containerId: string): Promise<string> {
    return this.#endpoints.createSandbox(containerId);
  }

  async removeSandbox(containerId: string): Promise<void> {
    this.#endpoints.removeSandbox(containerId);
    return Promise.resolve();
  }

  wayOut(networks: readonly WayOut[]): string | undefined {
    const isWay = ({ name }: WayOut): boolean => {
      const { id, internal } = this.resolve(name);
      return !internal && this.#attachable.has(id);
    };
    return networks.filter(isWay).sort(compareWaysOut)[0]?.name;
  }

  async attach(request: AttachRequest): Promise<AttachResult> {
    const summary = this.resolve(request.network);
    if (summary.configOnly) throw forbidden(`cannot attach to the configuration network "${summary.name}"`, { code: 'CONFIG_ONLY' });
    if (LINKLESS.has(summary.driver)) return { endpoint: endpointWithoutLink(summary, request), ports: [] };
    const network = this.#attachable.get(summary.id);
    if (!network) throw internal(`network ${summary.name} could not be made on this host`);
    return this.#endpoints.attach(network, { ...request, nameservers: this.#nameservers(request.nameservers) });
  }

  async detach(containerId: string, endpoint: Endpoint): Promise<void> {
    this.#endpoints.detach(containerId, endpoint);
    return Promise.resolve();
  }

  disconnect(containerId: string, endpoint: Endpoint): Promise<void> {
    return this.#endpoints.disconnect(containerId, endpoint);
  }

  publish(endpoint: Endpoint, ports: readonly PortRequest[]): Promise<readonly PublishedPort[]> {
    return this.#endpoints.publish(endpoint, ports);
  }

  unpublish(endpoint: Endpoint): Promise<void> {
    return this.#endpoints.unpublish(endpoint);
  }

  rename(containerId: string, endpoint: Endpoint): void {
    this.#endpoints.rename(containerId, endpoint);
  }

  discard(endpointId: string): Promise<void> {
    return this.#endpoints.discard(endpointId);
  }

  async adopt(containerId: string, endpoint: Endpoint, ports: readonly PublishedPort[], nameservers?: readonly string[]): Promise<void> {
    const network = this.#attachable.get(endpoint.networkId);
    if (network) await this.#endpoints.adopt(network, containerId, endpoint, ports, this.#nameservers(nameservers));
  }

  #nameservers(given: readonly string[] | undefined): readonly string[] {
    return given !== undefined && given.length > 0 ? given : this.options.nameservers();
  }

  hostDns(): Promise<HostDns> {
    // A start must not wait for a file that hardly ever changes, nor use one that changed a while ago.
    if (!this.#dns || performance.now() - this.#dns.at > DNS_CACHE_MS) this.#dns = { at: performance.now(), value: readHostDns() };
    return this.#dns.value;
  }
}

function predefined(name: string, driver: string, identity: Identity): NetworkSummary {
  return { ...identity, name, driver, internal: false, attachable: false, enableIpv4: true, enableIpv6: false, hasNames: false, configOnly: false, configFrom: '', ipam: { driver: 'default', options: null }, subnets: [], options: {}, labels: {} };
}

function endpointWithoutLink({ id, name }: NetworkSummary, { aliases, dnsNames }: AttachRequest): Endpoint {
  return {
    networkId: id,
    networkName: name,
    endpointId: randomBytes(32).toString('hex'),
    macAddress: '',
    ipv4: '',
    ipv4PrefixLength: 0,
    gateway: '',
    ipv6: '',
    ipv6PrefixLength: 0,
    ipv6Gateway: '',
    interfaceName: '',
    aliases,
    dnsNames,
    links: {},
    gatewayPriority: 0,
  };
}

/** Options of the default bridge under the names that clients read. */
function bridgeLabels(options: BridgeOptions, publishIp: string): Record<string, string> {
  return {
    'com.docker.network.bridge.default_bridge': 'true',
    'com.docker.network.bridge.enable_icc': String(options.icc),
    'com.docker.network.bridge.enable_ip_masquerade': String(options.ipMasq),
    'com.docker.network.bridge.host_binding_ipv4': publishIp,
    'com.docker.network.bridge.name': options.name,
    'com.docker.network.driver.mtu': String(options.mtu),
  };
}
