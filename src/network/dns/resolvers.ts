/** The name servers of all sandboxes that are on networks with names. */
import type { Endpoint } from '../../ports/network.js';
import { inNetns } from '../../sys/process/netns.js';
import { readHostServers } from '../host-dns.js';
import { compareEndpoints } from '../ways-out.js';
import type { Upstream } from './forwarder.js';
import { Names } from './names.js';
import { Resolver } from './resolver.js';

interface Membership {
  readonly endpoint: Endpoint;
  /** True if the network has no way out. */
  readonly internal: boolean;
}

interface Client {
  /** The networks by ID, in the order in which names are looked for. */
  readonly memberships: Map<string, Membership>;
  /** The name servers that the container names; empty: those of the host. */
  readonly upstreams: readonly Upstream[];
  readonly resolver: Promise<Resolver>;
}

export interface Joining {
  readonly containerId: string;
  readonly netnsPath: string;
  readonly endpoint: Endpoint;
  readonly internal: boolean;
  /** The servers for names that are not ours; empty: those of the host. */
  readonly nameservers: readonly string[];
}

/** The host's list of servers is read again after this time. */
const HOST_SERVERS_MS = 2000;
const NOWHERE: readonly Upstream[] = [];

export class Resolvers {
  readonly #names = new Names();
  /** Clients by the ID of their container. */
  readonly #clients = new Map<string, Client>();
  #host: readonly Upstream[] = NOWHERE;
  #hostReadAt = -Infinity;

  /** Makes an endpoint's names known; the sandbox has its name server when the promise resolves. */
  async join({ containerId, netnsPath, endpoint, internal, nameservers }: Joining): Promise<void> {
    this.#names.add(endpoint);
    const client = this.#clients.get(containerId) ?? this.#open(containerId, netnsPath, nameservers);
    client.memberships.set(endpoint.networkId, { endpoint, internal });
    rank(client.memberships);
    await Promise.all([client.resolver, this.#readHost()]);
  }

  /** Forgets an endpoint's names; the name server ends with the last endpoint. Idempotent. */
  leave(containerId: string, endpoint: Endpoint): void {
    const client = this.#clients.get(containerId);
    const membership = client?.memberships.get(endpoint.networkId);
    if (!client || membership?.endpoint.endpointId !== endpoint.endpointId) return;
    // The endpoint may have other names by now than at `join`.
    this.#names.remove(membership.endpoint);
    client.memberships.delete(endpoint.networkId);
    if (client.memberships.size === 0) this.#close(containerId, client);
  }

  /** Replaces the names of an endpoint. */
  rename(containerId: string, endpoint: Endpoint): void {
    const memberships = this.#clients.get(containerId)?.memberships;
    const membership = memberships?.get(endpoint.networkId);
    if (!memberships || membership?.endpoint.endpointId !== endpoint.endpointId) return;
    this.#names.remove(membership.endpoint);
    this.#names.add(endpoint);
    memberships.set(endpoint.networkId, { ...membership, endpoint });
  }

  close(): void {
    for (const [containerId, client] of this.#clients) this.#close(containerId, client);
  }

  #open(containerId: string, netnsPath: string, nameservers: readonly string[]): Client {
    const inside = <T>(work: () => T): T => inNetns(netnsPath, work);
    const memberships = new Map<string, Membership>();
    const upstreams = nameservers.map((address) => ({ address, within: inside }));
    const resolver = Resolver.open({
      inside,
      answer: (name, type) => this.#names.answer(memberships, name, type),
      upstreams: () => {
        if ([...memberships.values()].every(({ internal }) => internal)) return NOWHERE;
        if (upstreams.length > 0) return upstreams;
        void this.#readHost();
        return this.#host;
      },
    });
    const client: Client = { memberships, upstreams, resolver };
    this.#clients.set(containerId, client);
    // The next endpoint that joins tries again.
    resolver.catch(() => this.#clients.delete(containerId));
    return client;
  }

  #close(containerId: string, { resolver }: Client): void {
    this.#clients.delete(containerId);
    resolver.then(
      (opened) => opened.close(),
      () => undefined,
    );
  }

  /**
   * Reads the host's list. While it stays the same, so do the objects, because sockets to the servers are found by
   * them.
   */
  async #readHost(): Promise<void> {
    if (performance.now() - this.#hostReadAt < HOST_SERVERS_MS) return;
    this.#hostReadAt = performance.now();
    const servers = await readHostServers();
    if (servers.join() !== this.#host.map(({ address }) => address).join())
      this.#host = servers.map((address) => ({ address, within: (work) => work() }));
  }
}

/** Puts networks in order: a host on several of them has the address of the one by which the client leaves. */
function rank(memberships: Map<string, Membership>): void {
  const ranked = [...memberships].toSorted(
    ([, a], [, b]) => Number(a.internal) - Number(b.internal) || compareEndpoints(a.endpoint, b.endpoint),
  );
  memberships.clear();
  for (const [networkId, membership] of ranked) memberships.set(networkId, membership);
}
