/** Makes and removes networks of users: the order of the steps, and what is undone when one of them fails. */
import { randomBytes } from 'node:crypto';
import { forbidden } from '../errors/engine-error.js';
import type { NetworkRequest, NetworkSummary, WantedNetwork } from '../ports/network.js';
import type { Netlink } from '../sys/netlink/route-netlink.js';
import { ownMember } from '../text/own-member.js';
import type { AttachableNetwork } from './attachable-network.js';
import type { Endpoints } from './endpoints.js';
import { hostSubnets, type PoolOption } from './free-subnet.js';
import { randomMac } from './host-bridges.js';
import { inUse, type NetworkDirectory } from './network-directory.js';
import { type NetworkMaker, poolsOf } from './network-maker.js';
import { withFamilies } from './network-options.js';
import { checkRequest, settleNetwork } from './network-plan.js';
import type { NetworkRecords, UserNetwork } from './network-records.js';
import type { LeasedPool } from './plugin-addresses.js';
import type { PluginNetworks } from './plugin-networks.js';
import { PREDEFINED } from './predefined.js';
import { parseSubnet } from './subnet.js';

interface UserNetworkDeps {
  readonly options: {
    readonly addressPools: readonly PoolOption[];
    /** Options of new networks, by driver. */
    readonly defaultNetworkOptions: Readonly<Record<string, Readonly<Record<string, string>>>>;
  };
  readonly netlink: Netlink;
  readonly directory: NetworkDirectory;
  /** Networks that containers get links to, by network ID. */
  readonly attachable: Map<string, AttachableNetwork>;
  readonly endpoints: Endpoints;
  readonly maker: NetworkMaker;
  readonly plugged: PluginNetworks;
  readonly records: () => NetworkRecords;
}

/** A network that is being removed. */
interface Withdrawn {
  readonly summary: NetworkSummary;
  readonly network: AttachableNetwork | undefined;
  readonly record: UserNetwork | undefined;
}

export class UserNetworks {
  readonly #deps: UserNetworkDeps;
  /** Networks are made and removed one after another, because each depends on what the others have. */
  #turn: Promise<unknown> = Promise.resolve();

  constructor(deps: UserNetworkDeps) {
    this.#deps = deps;
  }

  async create(client: WantedNetwork): Promise<NetworkSummary> {
    const wanted = withFamilies(client, ownMember(this.#deps.options.defaultNetworkOptions, client.driver) ?? {});
    if (PREDEFINED.has(wanted.name))
      throw forbidden(`operation is not permitted on predefined ${wanted.name} network `, {
        code: 'PREDEFINED_NETWORK',
      });
    const request = wanted.configFrom === '' ? wanted : this.#deps.directory.configured(wanted);
    checkRequest(request);
    this.#deps.directory.checkName(request);
    // A plugin may be slow, and nobody else has to wait for it.
    const leased = await this.#deps.plugged.prepare(request);
    try {
      const { network, opened } = await this.#admit(request, leased);
      if (opened) await this.#finish(network, opened);
      return network.summary;
    } catch (error) {
      await this.#deps.plugged.release(request, leased ?? []);
      throw error;
    }
  }

  /** Decides the settings of a new network, writes its record, and makes the engine's own part of it. */
  #admit(
    request: NetworkRequest,
    leased: readonly LeasedPool[] | undefined,
  ): Promise<{ readonly network: UserNetwork; readonly opened?: AttachableNetwork }> {
    return this.#inTurn(async () => {
      this.#deps.directory.checkName(request);
      const id = randomBytes(32).toString('hex');
      const created = new Date().toISOString();
      const chosen = request.subnets.some(({ subnet }) => subnet !== '');
      if (request.configOnly) {
        const summary = { ...request, driver: 'null', id, created, hasNames: false };
        const network = { summary, chosen, foreign: false };
        await this.#note(network);
        return { network };
      }
      const host = await hostSubnets(this.#deps.netlink);
      const others = this.#deps.directory.list().filter(({ configOnly }) => !configOnly);
      const summary = settleNetwork(request, id, created, {
        pools: this.#deps.options.addressPools,
        networks: others.flatMap(({ subnets }) => subnets.map(({ subnet }) => parseSubnet(subnet, 'subnet'))),
        host: [...host.addresses, ...host.routes],
        defaultOptions: ownMember(this.#deps.options.defaultNetworkOptions, request.driver) ?? {},
        leased,
      });
      const links = await this.#deps.netlink.links();
      const network: UserNetwork = {
        summary,
        chosen,
        foreign: this.#deps.maker.isForeign(summary, links, others),
        ...(request.driver === 'bridge' ? { mac: randomMac() } : {}),
        ...(leased ? { poolIds: leased.map((pool) => pool.id) } : {}),
        ...(this.#deps.plugged.has(summary) ? { isPending: true } : {}),
      };
      await this.#note(network);
      try {
        return { network, opened: await this.#deps.maker.open(summary, network, links, true) };
      } catch (error) {
        await this.#forget(id);
        throw error;
      }
    });
  }

  /** Asks another process to make its part of a network, and then lets containers be attached to it. */
  async #finish(network: UserNetwork, opened: AttachableNetwork): Promise<void> {
    const { summary, isPending, ...rest } = network;
    try {
      if (isPending) {
        await this.#deps.plugged.make(summary);
        await this.#deps.records().replace({ ...rest, summary });
      }
    } catch (error) {
      await this.#deps.maker.close(opened, false);
      await this.#forget(summary.id);
      throw error;
    }
    this.#deps.attachable.set(summary.id, opened);
  }

  async #forget(id: string): Promise<void> {
    await this.#deps.records().forget(id);
    this.#deps.directory.delete(id);
  }

  async #note(network: UserNetwork): Promise<void> {
    await this.#deps.records().add(network);
    this.#deps.directory.add(network.summary);
  }

  async remove(nameOrId: string): Promise<NetworkSummary> {
    const withdrawn = await this.#inTurn(async () => {
      const found = this.#withdraw(nameOrId);
      if (!this.#deps.plugged.has(found.summary)) await this.#discard(found);
      return found;
    });
    const { summary, network, record } = withdrawn;
    if (!record || !this.#deps.plugged.has(summary)) return summary;
    try {
      await this.#deps.records().replace({ ...record, isPending: true, leavingSince: new Date().toISOString() });
      await this.#deps.plugged.unmake(summary, poolsOf(summary, record));
    } catch (error) {
      await this.#deps.records().replace(record);
      if (network) this.#deps.attachable.set(summary.id, network);
      throw error;
    }
    await this.#inTurn(() => this.#discard(withdrawn));
    return summary;
  }

  /** Removes the engine's own part of a network, and its record. */
  async #discard({ summary, network, record }: Withdrawn): Promise<void> {
    if (network) {
      const isShared = [...this.#deps.attachable.values()].some(({ link }) => link === network.link);
      await this.#deps.maker.close(network, isShared);
    }
    try {
      await this.#deps.records().remove(summary);
      this.#deps.directory.delete(summary.id);
    } catch (error) {
      // As long as its record is on disk, the network exists and containers can use it.
      if (network && record)
        this.#deps.attachable.set(
          summary.id,
          await this.#deps.maker.open(summary, record, await this.#deps.netlink.links()),
        );
      throw error;
    }
  }

  /** Withdraws a network that may be removed, so that no container is attached while it goes. */
  #withdraw(nameOrId: string): Withdrawn {
    const summary = this.#deps.directory.resolve(nameOrId);
    if (PREDEFINED.has(summary.name))
      throw forbidden(`${summary.name} is a pre-defined network and cannot be removed`, { code: 'PREDEFINED_NETWORK' });
    const endpoints = this.#deps.endpoints.of(summary.id).map(({ endpoint }) => endpoint);
    if (endpoints.length > 0) throw inUse(summary, endpoints);
    const user = this.#deps.directory.list().find(({ configFrom }) => configFrom === summary.name);
    if (summary.configOnly && user)
      throw forbidden(`configuration network "${summary.name}" is in use`, { code: 'NETWORK_IN_USE' });
    const network = this.#deps.attachable.get(summary.id);
    this.#deps.attachable.delete(summary.id);
    return { summary, network, record: this.#deps.records().find(summary.id) };
  }

  #inTurn<T>(work: () => Promise<T>): Promise<T> {
    const run = this.#turn.then(work);
    this.#turn = run.catch(() => undefined);
    return run;
  }
}
