/** The published ports of one endpoint: held by sockets, translated by rules. */
import { EngineError, messageOf } from '../errors/engine-error.js';
import type { Logger } from '../ports/logger.js';
import type { Endpoint, PortRequest, PublishedPort } from '../ports/network.js';
import { forgetFlows } from '../sys/netlink/conntrack.js';
import { mapParts } from '../text/list-parts.js';
import { inTurns, type Parts } from '../text/turns.js';
import type { Ports, Publishing } from './attachable-network.js';
import type { PortRule } from './firewall-rules.js';
import type { Firewall } from './firewall.js';
import { HELD_ELSEWHERE, type HeldPort, type HoldOptions, holdPort, letGo } from './port-holder.js';
import { type Family, familyOf } from './subnet.js';
import { TriedNumbers } from './tried-numbers.js';
import type { UnderWay } from './under-way.js';

/** These addresses stand for every address of the host. */
const ANY = { 4: '0.0.0.0', 6: '::' } as const;
const PROTOCOL_NUMBERS = { udp: 17, sctp: 132 } as const;

export interface PortsOptions extends HoldOptions {
  readonly iptables: boolean;
  readonly firewall: Firewall;
  readonly log: Logger;
}

export class EndpointPorts implements Ports {
  #held: readonly HeldPort[] = [];
  #rules: readonly PortRule[] = [];

  /**
   * Makes the ports of an endpoint. On networks that publish nothing, `publishing` is undefined, and `open` and `adopt`
   * do nothing.
   */
  constructor(
    private readonly options: PortsOptions,
    private readonly endpoint: Endpoint,
    private readonly publishing: Publishing | undefined,
  ) {}

  /** The ports as they are really bound. */
  get list(): readonly PublishedPort[] {
    return this.#held.map(({ port }) => port);
  }

  /**
   * Publishes all ports or none. @throws EngineError internal with code PORT_IN_USE or FIREWALL; after FIREWALL,
   * `close` must be called.
   */
  async open(ports: readonly PortRequest[]): Promise<void> {
    if (!this.publishing || ports.length === 0) return;
    await this.#publish(await this.#hold(this.publishing, ports), this.publishing);
  }

  /** Takes over ports of an earlier run of the daemon. A port that somebody took meanwhile is reported and left out. */
  async adopt(ports: readonly PublishedPort[], containerId: string): Promise<void> {
    if (!this.publishing) return;
    const held: HeldPort[] = [];
    for (const port of ports) {
      try {
        held.push(...(await this.#holdOne(this.publishing, port)));
      } catch (error) {
        this.options.log.error(
          { err: error, container: containerId },
          'a published port was taken while the daemon was away',
        );
      }
    }
    await this.#publish(held, this.publishing);
  }

  /** Closes the ports. Idempotent. */
  async close(): Promise<void> {
    const [rules, held] = [this.#rules, this.#held];
    [this.#rules, this.#held] = [[], []];
    await letGo(held);
    await this.options.firewall.unpublish(rules);
    await this.#forget(rules);
  }

  /** Leaves sockets and connections to the next process; the rules stay, and what leads to containers from outside. */
  release(): void {
    for (const port of this.#held) port.release();
    this.#held = [];
  }

  async rest(underWay: UnderWay): Promise<void> {
    await Promise.all(this.#held.map((port) => port.rest(underWay)));
  }

  async #publish(held: readonly HeldPort[], { link }: Publishing): Promise<void> {
    this.#held = held;
    this.#rules = await inTurns(rulesOf(held, link));
    await this.options.firewall.publish(this.#rules);
    await this.#forget(this.#rules);
  }

  /** Forgets flows to these ports: otherwise a sender of datagrams would still reach the old target of the port. */
  async #forget(rules: readonly PortRule[]): Promise<void> {
    if (!this.options.iptables) return;
    for (const family of [4, 6] as const) {
      const flows = rules.flatMap(({ protocol, hostPort, containerIp }) =>
        protocol === 'tcp' || familyOf(containerIp) !== family
          ? []
          : [{ protocol: PROTOCOL_NUMBERS[protocol], port: hostPort }],
      );
      if (flows.length === 0) continue;
      await forgetFlows(family, flows).catch((error: unknown) =>
        this.options.log.warn(
          { err: error },
          'datagrams of clients that go on sending may be led where a port led before',
        ),
      );
    }
  }

  /** Holds one port on the host by its sockets; families that are routed need none. */
  async #holdOne({ routed }: Publishing, port: PortRequest, tried?: TriedNumbers): Promise<HeldPort[]> {
    const { ipv4, ipv6 } = this.endpoint;
    const isWanted = (family: Family): boolean => port.hostIp === '' || familyOf(port.hostIp) === family;
    const direct = (
      [
        [4, ipv4],
        [6, ipv6],
      ] as const
    ).flatMap(([family, containerIp]) =>
      routed.includes(family) && containerIp !== '' && isWanted(family)
        ? [openPort(port, ANY[family], containerIp)]
        : [],
    );
    const target = { ipv4: routed.includes(4) ? '' : ipv4, ipv6: routed.includes(6) ? '' : ipv6 };
    const families = ([4, 6] as const).filter((family) => isWanted(family) && !routed.includes(family));
    if (families.length === 0 || (target.ipv4 === '' && target.ipv6 === '')) return direct;
    // The other family is open at the container itself, so only this family is held.
    const [family] = families;
    const hostIp = port.hostIp === '' && direct.length > 0 && family ? ANY[family] : port.hostIp;
    const held = await holdPort({ ...port, hostIp }, target, this.options, tried);
    const isIpv6 = (one: HeldPort): number => Number(one.port.hostIp.includes(':'));
    return [...direct, ...held].sort((a, b) => isIpv6(a) - isIpv6(b));
  }

  /** Holds every wanted port or none. */
  async #hold(publishing: Publishing, ports: readonly PortRequest[]): Promise<HeldPort[]> {
    const { endpointId, dnsNames } = this.endpoint;
    const held: HeldPort[] = [];
    const tried = new TriedNumbers();
    try {
      for (const port of ports)
        held.push(...(await this.#holdOne(publishing, { ...port, hostIp: port.hostIp || publishing.address }, tried)));
      return held;
    } catch (error) {
      await letGo(held);
      throw new EngineError(
        'internal',
        `driver failed programming external connectivity on endpoint ` +
          `${dnsNames[0] ?? ''} (${endpointId}): ${messageOf(error)}`,
        {
          cause: error,
          code: 'PORT_IN_USE',
        },
      );
    }
  }
}

/** Describes an open port of the container itself, which the host has no part in. */
function openPort({ protocol, containerPort }: PortRequest, hostIp: string, containerIp: string): HeldPort {
  return { port: { protocol, containerPort, hostIp, hostPort: 0 }, containerIp, ...HELD_ELSEWHERE };
}

/** Returns the translations for the ports that the kernel can translate: both addresses are of one family. */
function* rulesOf(held: readonly HeldPort[], link: string): Parts<PortRule[]> {
  const translated = held.filter(({ port, containerIp }) => port.hostIp.includes(':') === containerIp.includes(':'));
  return yield* mapParts(translated, ({ port, containerIp }) => ({
    bridge: link,
    protocol: port.protocol,
    hostIp: port.hostIp,
    hostPort: port.hostPort,
    containerIp,
    containerPort: port.containerPort,
  }));
}
