/** The networks of this host: the default bridge, `host`, `none`, and the networks of users. */
import { createHash } from 'node:crypto';
import { forbidden, internal } from '../errors/engine-error.js';
import type {
  AttachRequest,
  AttachResult,
  Endpoint,
  EndpointNames,
  LinkTarget,
  NetworkDriver,
  NetworkSummary,
  PortRequest,
  PublishedPort,
  RestLimits,
  WantedNetwork,
} from '../ports/network.js';
import { Netlink } from '../sys/netlink/route-netlink.js';
import type { AttachableNetwork } from './attachable-network.js';
import { Bridge, hostAddresses } from './bridge.js';
import { ContainerLinks } from './container-links.js';
import type { BridgeOptions } from './default-bridge.js';
import { openDefaultBridge } from './default-network.js';
import { Endpoints, type EndpointOptions } from './endpoints.js';
import { Firewall } from './firewall.js';
import { type BackendName, makeBackend, otherBackends } from './firewall-backends.js';
import type { PoolOption } from './free-subnet.js';
import { HostBridges, isForeignBridge } from './host-bridges.js';
import { readHostDns, type HostDns } from './host-dns.js';
import { NetworkDirectory } from './network-directory.js';
import { type MakerOptions, NetworkMaker, poolsOf } from './network-maker.js';
import { NetworkRecords, type RecordFile, type RemovedNetwork } from './network-records.js';
import { PluginDebts } from './plugin-debts.js';
import { PluginNetworks } from './plugin-networks.js';
import { endpointWithoutLink, isLinkless, linklessNames, predefined } from './predefined.js';
import type { Family } from './subnet.js';
import { waitForUnderWay } from './under-way.js';
import { UserNetworks } from './user-networks.js';
import { type Candidate, compareWaysOut } from './ways-out.js';

export interface NetworkOptions extends Omit<
  EndpointOptions & MakerOptions,
  'netlink' | 'firewall' | 'debts' | 'sandboxes' | 'bridges'
> {
  /** Undefined if there is no default bridge (`--bridge none`). */
  readonly bridge: BridgeOptions | undefined;
  /** Writes the firewall's rules. */
  readonly firewallBackend: BackendName;
  /** Others may reach published ports by the addresses of containers, if they have a route. */
  readonly directRouting: boolean;
  /** Host address of ports on the default bridge that name none. */
  readonly publishIp: string;
  readonly addressPools: readonly PoolOption[];
  /** Options of new networks, by driver. */
  readonly defaultNetworkOptions: Readonly<Record<string, Readonly<Record<string, string>>>>;
  /** Returns name servers for containers that name none; empty: those of the host. Called at each use. */
  readonly nameservers: () => readonly string[];
  /** Keeps the records of the networks. */
  readonly identities: RecordFile;
  /** Keeps what plugins have given and must get back. */
  readonly pluginDebts: RecordFile;
}

const DNS_CACHE_MS = 2000;

export class HostNetworks implements NetworkDriver {
  readonly #netlink = new Netlink();
  readonly #firewall: Firewall;
  readonly #endpoints: Endpoints;
  readonly #maker: NetworkMaker;
  readonly #bridges: HostBridges;
  readonly #directory = new NetworkDirectory();
  /** Networks that containers get links to, by network ID. */
  readonly #attachable = new Map<string, AttachableNetwork>();
  readonly #plugged: PluginNetworks;
  readonly #debts: PluginDebts;
  readonly #links: ContainerLinks;
  readonly #users: UserNetworks;
  #records: NetworkRecords | undefined;
  #hostAddresses: readonly string[] = [];
  #dns: { readonly at: number; readonly value: Promise<HostDns> } | undefined;

  constructor(private readonly options: NetworkOptions) {
    const families: readonly Family[] = !options.iptables ? [] : options.ip6tables ? [4, 6] : [4];
    const tag =
      options.bridge?.name ?? `none-${createHash('sha256').update(options.netnsRoot).digest('hex').slice(0, 8)}`;
    this.#firewall = new Firewall({
      tag,
      backend: makeBackend(options.firewallBackend, tag),
      others: otherBackends(options.firewallBackend, tag),
      families,
      userlandProxy: options.userlandProxy,
      directRouting: options.directRouting,
      log: options.log,
    });
    this.#links = new ContainerLinks({ ...options, netlink: this.#netlink, firewall: this.#firewall });
    this.#plugged = new PluginNetworks(options.plugins, options.log);
    this.#debts = new PluginDebts(options.pluginDebts, options.plugins, options.log);
    this.#endpoints = new Endpoints({ ...options, netlink: this.#netlink, firewall: this.#firewall });
    this.#bridges = new HostBridges(this.#netlink, () => this.#loaded());
    this.#maker = new NetworkMaker({
      ...options,
      netlink: this.#netlink,
      firewall: this.#firewall,
      debts: this.#debts,
      sandboxes: this.#endpoints.sandboxes,
      bridges: this.#bridges,
    });
    this.#users = new UserNetworks({
      options,
      netlink: this.#netlink,
      directory: this.#directory,
      attachable: this.#attachable,
      endpoints: this.#endpoints,
      maker: this.#maker,
      plugged: this.#plugged,
      records: () => this.#loaded(),
    });
  }

  async start(): Promise<void> {
    const [records] = await Promise.all([
      NetworkRecords.open(this.options.identities),
      this.#firewall.open(),
      this.#debts.load(),
      this.options.outerPorts?.start(),
    ]);
    this.#records = records;
    const { bridge: wanted } = this.options;
    if (wanted) await this.#openDefault(wanted, records);
    for (const summary of [
      predefined('host', 'host', records.identity('host')),
      predefined('none', 'null', records.identity('none')),
    ])
      this.#directory.add(summary);
    const links = await this.#netlink.links();
    await Promise.all(
      records.networks.map(async (network) => {
        const { summary } = network;
        if (network.isPending) return;
        this.#directory.add(summary);
        if (summary.configOnly) return;
        await this.#maker.open(summary, network, links).then(
          (opened) => this.#attachable.set(summary.id, opened),
          (error: unknown) =>
            this.options.log.error(
              { err: error, network: summary.name },
              'a network cannot be made again; containers cannot be attached to it',
            ),
        );
      }),
    );
  }

  async #openDefault(wanted: BridgeOptions, records: NetworkRecords): Promise<void> {
    const { summary, bridge } = await openDefaultBridge(wanted, {
      ...this.options,
      netlink: this.#netlink,
      bridges: this.#bridges,
      records,
    });
    this.#hostAddresses = hostAddresses(bridge.plan).map((address) => address.ip);
    this.#directory.add(summary);
    this.#attachable.set(summary.id, await this.#maker.admit(summary, bridge, false));
  }

  rest(limits: RestLimits): Promise<void> {
    return waitForUnderWay((underWay) => this.#endpoints.rest(underWay), limits);
  }

  async stop(): Promise<void> {
    this.#endpoints.close();
    const isIdle = this.#endpoints.isIdle;
    try {
      if (isIdle) await this.#firewall.remove();
    } finally {
      // Rules that cannot be removed keep no link.
      if (isIdle) await this.#maker.removeLinks([...this.#attachable.values()]);
      this.#firewall.close();
      this.#netlink.close();
    }
  }

  list(): readonly NetworkSummary[] {
    return this.#directory.list();
  }

  removed(): readonly RemovedNetwork[] {
    return this.#loaded().removed;
  }

  resolve(nameOrId: string): NetworkSummary {
    return this.#directory.resolve(nameOrId);
  }

  create(wanted: WantedNetwork): Promise<NetworkSummary> {
    return this.#users.create(wanted);
  }

  remove(nameOrId: string): Promise<NetworkSummary> {
    return this.#users.remove(nameOrId);
  }

  #loaded(): NetworkRecords {
    if (!this.#records) throw internal('networks are used before they are started');
    return this.#records;
  }

  sandboxIds(): string[] {
    return this.#endpoints.sandboxes.ids();
  }

  sandboxPath(containerId: string): string {
    return this.#endpoints.sandboxes.path(containerId);
  }

  createSandbox(containerId: string, pid?: number): Promise<string> {
    return this.#endpoints.sandboxes.create(containerId, pid);
  }

  removeSandbox(containerId: string): Promise<void> {
    return this.#endpoints.sandboxes.remove(containerId);
  }

  wayOut(networks: readonly Omit<Candidate, 'isDual'>[]): string | undefined {
    const isWay = ({ name }: Omit<Candidate, 'isDual'>): boolean => {
      const { id, internal } = this.resolve(name);
      return !internal && this.#attachable.has(id);
    };
    const candidates = networks.filter(isWay).map((candidate) => {
      const { enableIpv4, enableIpv6 } = this.resolve(candidate.name);
      return { ...candidate, isDual: enableIpv4 && enableIpv6 };
    });
    return candidates.sort(compareWaysOut)[0]?.name;
  }

  nameEndpoint(containerId: string, network: string, options: Readonly<Record<string, string>>): EndpointNames {
    const attachable = this.#attachable.get(this.resolve(network).id);
    return attachable ? this.#endpoints.name(containerId, attachable, options) : linklessNames();
  }

  async attach(request: AttachRequest): Promise<AttachResult> {
    const summary = this.resolve(request.network);
    if (summary.configOnly)
      throw forbidden(`cannot attach to the configuration network "${summary.name}"`, { code: 'CONFIG_ONLY' });
    if (isLinkless(summary)) return { endpoint: endpointWithoutLink(summary, request), ports: [] };
    const network = this.#attachable.get(summary.id);
    if (!network) throw internal(`network ${summary.name} could not be made on this host`);
    return this.#endpoints.attach(network, { ...request, nameservers: this.#nameservers(request.nameservers) });
  }

  async detach(containerId: string, endpoint: Endpoint): Promise<void> {
    await Promise.all([this.#endpoints.detach(containerId, endpoint), this.#links.drop(endpoint.endpointId)]);
  }

  async disconnect(containerId: string, endpoint: Endpoint): Promise<void> {
    await Promise.all([this.#endpoints.disconnect(containerId, endpoint), this.#links.drop(endpoint.endpointId)]);
  }

  async link(endpoint: Endpoint, targets: readonly LinkTarget[]): Promise<void> {
    const network = this.#attachable.get(endpoint.networkId);
    if (network?.medium instanceof Bridge && !network.medium.plan.interContainer)
      await this.#links.set(network.link, endpoint, targets);
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

  async discard(containerId: string, names: EndpointNames): Promise<void> {
    if (names.interfaceName !== '') await this.#endpoints.discard(containerId, names);
  }

  async settle(): Promise<void> {
    const own = [...this.#attachable.values()].flatMap(({ medium, link }) =>
      medium instanceof Bridge && !medium.isForeign ? [link] : [],
    );
    await Promise.all([
      this.#firewall.disown(),
      this.#endpoints.sweep(new Set(own)),
      this.options.outerPorts?.settle(),
    ]);
    // The start does not wait, because plugins may be slow, or be started later.
    void this.#settlePlugins().catch((error: unknown) =>
      this.options.log.error({ err: error }, 'what plugins have given to an earlier run is not given back'),
    );
  }

  async #settlePlugins(): Promise<void> {
    await this.#debts.settle();
    for (const { isPending, summary, ...open } of this.#loaded().networks) {
      if (!isPending) continue;
      await this.#plugged.unmake(summary, poolsOf(summary, open));
      const link = (await this.#netlink.links()).find(({ name }) => name === this.#maker.linkOf(summary));
      if (link && !isForeignBridge(link, open)) await this.#netlink.deleteLinks([link.name]);
      await this.#loaded().forget(summary.id);
    }
  }

  async adopt(
    containerId: string,
    endpoint: Endpoint,
    ports: readonly PublishedPort[],
    nameservers?: readonly string[],
  ): Promise<void> {
    const network = this.#attachable.get(endpoint.networkId);
    if (network) await this.#endpoints.adopt(network, containerId, endpoint, ports, this.#nameservers(nameservers));
  }

  #nameservers(given: readonly string[] | undefined): readonly string[] {
    return given !== undefined && given.length > 0 ? given : this.options.nameservers();
  }

  hostAddresses(): readonly string[] {
    return this.#hostAddresses;
  }

  hostDns(): Promise<HostDns> {
    // The file hardly ever changes, so it is read at most once in this time.
    if (!this.#dns || performance.now() - this.#dns.at > DNS_CACHE_MS)
      this.#dns = { at: performance.now(), value: readHostDns() };
    return this.#dns.value;
  }
}
