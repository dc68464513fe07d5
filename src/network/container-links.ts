/**
 * Links between containers of a bridge that keeps its containers apart: the ports that one container exposes are open
 * to the other. The bridge separates its ports; those of linked containers are released from that, and only the packet
 * filter keeps other traffic away.
 */
import { isEngineError } from '../errors/engine-error.js';
import type { Logger } from '../ports/logger.js';
import type { Endpoint, LinkTarget } from '../ports/network.js';
import type { Netlink } from '../sys/netlink/route-netlink.js';
import { hostLink } from './endpoints.js';
import type { LinkRule } from './firewall-rules.js';
import type { Firewall } from './firewall.js';
import { filterBridged } from './forwarding.js';

interface Options {
  readonly netlink: Netlink;
  readonly firewall: Firewall;
  readonly iptables: boolean;
  readonly log: Logger;
}

interface Linked {
  readonly endpointIds: readonly string[];
  readonly rules: readonly LinkRule[];
}

export class ContainerLinks {
  /** Links by the endpoint that may use them. */
  readonly #links = new Map<string, Linked>();
  #isFiltered: Promise<boolean> | undefined;

  constructor(private readonly options: Options) {}

  /** Sets the links of an endpoint, in place of those before. */
  async set(bridge: string, owner: Endpoint, targets: readonly LinkTarget[]): Promise<void> {
    const rules = targets.flatMap(({ endpoint, ports }) =>
      ports.flatMap((port) => rulesOf(bridge, owner, endpoint, port)),
    );
    const before = this.#links.get(owner.endpointId);
    if (JSON.stringify(before?.rules ?? []) === JSON.stringify(rules)) return;
    if (rules.length > 0 && !(await this.#canFilter())) return;
    const isolatedAgain = this.#replace(
      owner.endpointId,
      rules.length === 0
        ? undefined
        : { rules, endpointIds: [owner.endpointId, ...targets.map(({ endpoint }) => endpoint.endpointId)] },
    );
    await this.#isolate(isolatedAgain, true);
    await this.options.firewall.setLinks(owner.endpointId, rules);
    await this.#isolate(this.#links.get(owner.endpointId)?.endpointIds ?? [], false);
  }

  /** Removes all links from and to an endpoint that is gone. */
  async drop(endpointId: string): Promise<void> {
    for (const [ownerId, { endpointIds, rules }] of this.#links) {
      if (!endpointIds.includes(endpointId)) continue;
      // Another container may get its address next; links to other endpoints stay.
      const others = rules.filter((rule) => rule.toEndpoint !== endpointId);
      const kept =
        ownerId === endpointId || others.length === 0
          ? undefined
          : { rules: others, endpointIds: endpointIds.filter((id) => id !== endpointId) };
      const isolatedAgain = this.#replace(ownerId, kept).filter((id) => id !== endpointId);
      await this.#isolate(isolatedAgain, true);
      await this.options.firewall.setLinks(ownerId, kept?.rules ?? []);
    }
  }

  /** Replaces the links of an endpoint. Returns the endpoints that have no link any more. */
  #replace(ownerId: string, linked: Linked | undefined): string[] {
    const before = this.#links.get(ownerId)?.endpointIds ?? [];
    if (linked) this.#links.set(ownerId, linked);
    else this.#links.delete(ownerId);
    const still = new Set([...this.#links.values()].flatMap(({ endpointIds }) => endpointIds));
    return before.filter((id) => !still.has(id));
  }

  async #isolate(endpointIds: readonly string[], isolated: boolean): Promise<void> {
    for (const id of endpointIds) {
      await this.options.netlink.isolatePort(hostLink(id), isolated).catch((error: unknown) => {
        // The port has just gone with its container.
        if (!isEngineError(error) || error.code !== 'ENODEV') throw error;
      });
    }
  }

  #canFilter(): Promise<boolean> {
    this.#isFiltered ??= (this.options.iptables ? filterBridged([4]) : Promise.resolve([])).then((families) => {
      if (families.length === 0)
        this.options.log.warn(
          {},
          'links open no ports: the packet filter does not see what goes from container to container ' +
            '(needs --iptables and the kernel module br_netfilter)',
        );
      return families.length > 0;
    });
    return this.#isFiltered;
  }
}

function rulesOf(
  bridge: string,
  owner: Endpoint,
  target: Endpoint,
  { protocol, port }: LinkTarget['ports'][number],
): LinkRule[] {
  // Links exist on the default bridge only, and use IPv4 addresses alone.
  if (owner.ipv4 === '' || target.ipv4 === '') return [];
  return [{ bridge, from: owner.ipv4, to: target.ipv4, protocol, port, toEndpoint: target.endpointId }];
}
