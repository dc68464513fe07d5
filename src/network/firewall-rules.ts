/** The firewall as data: what becomes of which packets, in the words of no program that writes rules. */
import { isIPv4 } from 'node:net';
import { mapParts } from '../text/list-parts.js';
import type { Parts } from '../text/turns.js';
import type { GatewayMode } from './gateway-mode.js';
import type { Family } from './subnet.js';

/** One bridge as the firewall sees it in one family. */
export interface BridgeRules {
  readonly bridge: string;
  /** Subnets (CIDR) by family. */
  readonly subnets: Readonly<Partial<Record<Family, string>>>;
  readonly masquerade: boolean;
  /**
   * Source addresses of packets that leave, by family; without one, packets get the address of the link that they leave
   * by.
   */
  readonly sources: Readonly<Partial<Record<Family, string>>>;
  /** Containers on it may reach each other. */
  readonly interContainer: boolean;
  /** True if packets can neither enter nor leave. */
  readonly internal: boolean;
  readonly modes: Readonly<Record<Family, GatewayMode>>;
}

/**
 * A published port. Addresses are of one family. Where the network is routed, the host's address and port mean nothing.
 */
export interface PortRule {
  readonly bridge: string;
  readonly protocol: 'tcp' | 'udp' | 'sctp';
  /** An unspecified address means every address of the host. */
  readonly hostIp: string;
  readonly hostPort: number;
  readonly containerIp: string;
  readonly containerPort: number;
}

/** One port of a container that another one on its bridge may reach although the bridge keeps containers apart. */
export interface LinkRule {
  readonly bridge: string;
  readonly from: string;
  readonly to: string;
  /** Endpoint ID of `to`. */
  readonly toEndpoint: string;
  readonly protocol: 'tcp' | 'udp' | 'sctp';
  readonly port: number;
}

export interface Ruleset {
  readonly tag: string;
  /** If true, a proxy serves connections from the bridge's own containers and from loopback, instead of translation. */
  readonly userlandProxy: boolean;
  /** Others may reach published ports by the addresses of containers, too. */
  readonly directRouting: boolean;
  /** In these families the packet filter sees what goes from port to port of a bridge. */
  readonly bridged: readonly Family[];
  readonly bridges: readonly BridgeRules[];
  readonly ports: readonly PortRule[];
  readonly links: readonly LinkRule[];
}

/** A property of a packet that must have the value, or with `not` must not have it. */
export interface Match {
  readonly value: string;
  readonly not: boolean;
}

export type Verdict =
  | { readonly kind: 'accept' | 'drop' | 'masquerade' }
  | { readonly kind: 'source'; readonly address: string }
  | { readonly kind: 'destination'; readonly address: string; readonly port: number };

/** A packet that matches all that is given meets the verdict. */
export interface Rule {
  /** CIDR. */
  readonly source?: string;
  /** CIDR. */
  readonly destination?: Match;
  /** The link that the packet came by. */
  readonly from?: Match;
  /** The link that the packet leaves by. */
  readonly to?: Match;
  /** Absent from rules for every protocol, and the port from those for ICMP, which has none. */
  readonly protocol?: 'tcp' | 'udp' | 'sctp' | 'icmp';
  /** The port that the packet is sent to. */
  readonly port?: number;
  /** `translated`: the packet is of a connection whose destination was translated. */
  readonly flow?: 'answer' | 'no-answer' | 'translated';
  /** True for packets whose source is an address of the host. */
  readonly isFromHost?: boolean;
  readonly verdict: Verdict;
}

/** The rules of one family by the place where packets meet them; in each, the first that matches counts. */
export interface RuleStages {
  /** Forwarded packets, first: what may come to containers. */
  readonly in: readonly Rule[];
  /** Forwarded packets that `in` has let pass: what may leave containers. */
  readonly out: readonly Rule[];
  /** Packets for the host itself; undefined where no rule is needed. */
  readonly host: readonly Rule[] | undefined;
  /** New connections to addresses of the host. */
  readonly ports: readonly Rule[];
  /** New connections that are about to leave the host. */
  readonly masks: readonly Rule[];
}

const is = (value: string): Match => ({ value, not: false });
const not = (value: string): Match => ({ value, not: true });
const ACCEPT = { kind: 'accept' } as const;
const DROP = { kind: 'drop' } as const;
const MASQUERADE = { kind: 'masquerade' } as const;

/**
 * Tells whether bridges route loopback addresses, as they do without a proxy: then containers must not reach the host's
 * services by them.
 */
export function reachesLoopback(userlandProxy: boolean, family: Family): boolean {
  return !userlandProxy && family === 4;
}

/** A bridge with its settings of one family. */
interface BridgeHere extends BridgeRules {
  readonly subnet: string;
  readonly mode: GatewayMode;
}

/** Returns the rules of one family. There may be thousands of ports, so this is done in parts. */
export function* rulesOf(ruleset: Ruleset, family: Family): Parts<RuleStages> {
  const { userlandProxy, bridged, bridges, ports } = ruleset;
  const here = bridges.flatMap((rules): BridgeHere[] =>
    rules.subnets[family] === undefined ? [] : [{ ...rules, subnet: rules.subnets[family], mode: rules.modes[family] }],
  );
  const routed = new Set(here.filter(({ mode }) => mode === 'routed').map(({ bridge }) => bridge));
  const allPorts = ports.filter((port) => isIPv4(port.containerIp) === (family === 4));
  const portsHere = allPorts.filter(({ bridge }) => !routed.has(bridge));
  // On these bridges the packet filter sees the answers between neighbours. So only a container that reaches itself
  // needs a mask.
  const keepers = new Set(
    userlandProxy || !bridged.includes(family)
      ? []
      : here.filter(({ interContainer }) => interContainer).map(({ bridge }) => bridge),
  );
  const open = here.filter(({ internal }) => !internal);
  const into: Rule[][] = [];
  for (const bridge of here) into.push(yield* inRules(bridge, ruleset, allPorts, family));
  const ownMasks = yield* mapParts(
    portsHere.filter(({ bridge }) => keepers.has(bridge)),
    selfRule,
  );
  return {
    in: [
      ...here
        .filter(({ internal }) => internal)
        .map(({ bridge }): Rule => ({ from: is(bridge), to: not(bridge), verdict: DROP })),
      ...open.map(({ bridge }): Rule => ({ to: is(bridge), flow: 'answer', verdict: ACCEPT })),
      ...into.flat(),
    ],
    out: open.map(({ bridge }) => ({ from: is(bridge), to: not(bridge), verdict: ACCEPT })),
    host: reachesLoopback(userlandProxy, family)
      ? here.map(({ bridge }) => ({
          destination: is('127.0.0.0/8'),
          from: is(bridge),
          flow: 'no-answer',
          verdict: DROP,
        }))
      : undefined,
    ports: (yield* mapParts(portsHere, (port) => portRule(port, userlandProxy))).flat(),
    masks: [
      ...here
        .filter(({ bridge }) => !routed.has(bridge))
        .flatMap((rules) => maskRules(rules, { userlandProxy, isKeeper: keepers.has(rules.bridge), family })),
      ...ownMasks,
    ],
  };
}

/** Returns the rules for packets to the containers of a bridge. */
function* inRules(
  { bridge, interContainer, internal, mode }: BridgeHere,
  { links, directRouting }: Ruleset,
  ports: readonly PortRule[],
  family: Family,
): Parts<Rule[]> {
  const to = is(bridge);
  const opened = !internal && (mode === 'routed' || directRouting) ? yield* openings(bridge, ports) : [];
  return [
    ...links.filter((link) => link.bridge === bridge && isIPv4(link.to) === (family === 4)).map(linkRule),
    { from: to, to, verdict: interContainer ? ACCEPT : DROP },
    ...(internal
      ? []
      : mode === 'routed'
        ? // ICMP tells about the way to the ports.
          [...opened, { to, protocol: 'icmp', verdict: ACCEPT } as const]
        : [{ to, flow: 'translated', verdict: ACCEPT } as const, ...opened]),
    // A port that was not published cannot be reached, whatever else the host lets pass.
    { to, verdict: mode === 'nat-unprotected' && !internal ? ACCEPT : DROP },
  ];
}

/** Returns the rules that set the source addresses of packets from the containers of a bridge. */
function maskRules(
  { bridge, subnet, masquerade, sources, internal }: BridgeHere,
  {
    userlandProxy,
    isKeeper,
    family,
  }: { readonly userlandProxy: boolean; readonly isKeeper: boolean; readonly family: Family },
): Rule[] {
  const address = sources[family];
  const verdict: Verdict = address === undefined ? MASQUERADE : { kind: 'source', address };
  return [
    ...(masquerade && !internal ? [{ source: subnet, to: not(bridge), verdict }] : []),
    // A container that reaches itself or a neighbour through the host's port must get the answers from there.
    ...(internal || isKeeper
      ? []
      : [{ source: subnet, to: is(bridge), flow: 'translated', verdict: MASQUERADE } as const]),
    ...(userlandProxy || internal || family === 6
      ? []
      : [{ to: is(bridge), isFromHost: true, verdict: MASQUERADE } as const]),
  ];
}

/** Returns the CIDR of one address. */
const alone = (address: string): string => `${address}/${isIPv4(address) ? 32 : 128}`;

function linkRule({ bridge, from, to, protocol, port }: LinkRule): Rule {
  return {
    source: alone(from),
    destination: is(alone(to)),
    from: is(bridge),
    to: is(bridge),
    protocol,
    port,
    verdict: ACCEPT,
  };
}

/** Returns the rules that open published ports to whoever has a route to the containers of a bridge. */
function* openings(bridge: string, ports: readonly PortRule[]): Parts<Rule[]> {
  return yield* mapParts(
    ports.filter((port) => port.bridge === bridge),
    ({ protocol, containerIp, containerPort }) => ({
      destination: is(alone(containerIp)),
      to: is(bridge),
      protocol,
      port: containerPort,
      verdict: ACCEPT,
    }),
  );
}

/** Masks a container that reaches itself by way of the host; otherwise it would get packets from its own address. */
function selfRule({ containerIp, protocol, containerPort }: PortRule): Rule {
  const itself = alone(containerIp);
  return { source: itself, destination: is(itself), protocol, port: containerPort, verdict: MASQUERADE };
}

/** Returns the translation of one port; none if only the proxy can serve it. */
function portRule(
  { bridge, protocol, hostIp, hostPort, containerIp, containerPort }: PortRule,
  userlandProxy: boolean,
): Rule[] {
  const isLoopback = hostIp.startsWith('127.') || hostIp === '::1';
  if (isLoopback && (userlandProxy || hostIp === '::1')) return [];
  const isAny = hostIp === '0.0.0.0' || hostIp === '::';
  return [
    {
      ...(isAny ? {} : { destination: is(alone(hostIp)) }),
      ...(userlandProxy ? { from: not(bridge) } : {}),
      protocol,
      port: hostPort,
      verdict: { kind: 'destination', address: containerIp, port: containerPort },
    },
  ];
}
