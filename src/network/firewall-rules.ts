/**
 * The firewall as data: the contents of our chains, in the words of `iptables-save`, so that they can be compared with
 * the kernel's. The names of the chains contain the daemon's tag, so several daemons can share a host.
 */
import { isIPv4 } from 'node:net';
import type { GatewayMode } from './gateway-mode.js';
import type { Family } from './subnet.js';

export type Table = 'filter' | 'nat';

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
  /** In these families the packet filter sees what goes from port to port of a bridge. */
  readonly bridged: readonly Family[];
  readonly bridges: readonly BridgeRules[];
  readonly ports: readonly PortRule[];
  readonly links: readonly LinkRule[];
}

export interface Chain {
  readonly table: Table;
  readonly name: string;
  /** Rules without their `-A NAME`. */
  readonly rules: readonly string[];
}

/** Our rules in chains of others; in this order, they come before the rules that are there. */
export interface Jumps {
  readonly table: Table;
  readonly chain: string;
  readonly rules: readonly string[];
}

/** Operators put their own rules here. This chain comes before ours, and we never write to it. */
export const USER_CHAIN = 'ENGINE-USER';

export function dnatChain(tag: string): string {
  return `ENGINE-DNAT-${tag}`;
}

const chainNames = (tag: string) => ({
  in: `ENGINE-IN-${tag}`,
  out: `ENGINE-OUT-${tag}`,
  host: `ENGINE-HOST-${tag}`,
  dnat: dnatChain(tag),
  snat: `ENGINE-SNAT-${tag}`,
});

/**
 * Tells whether bridges route loopback addresses, as they do without a proxy: then containers must not reach the host's
 * services by them.
 */
function reachesLoopback(userlandProxy: boolean, family: Family): boolean {
  return !userlandProxy && family === 4;
}

/** A bridge with its settings of one family. */
interface BridgeHere extends BridgeRules {
  readonly subnet: string;
  readonly mode: GatewayMode;
}

/** Returns our chains and their contents for one family. */
export function chainsOf(ruleset: Ruleset, family: Family): Chain[] {
  const { tag, userlandProxy, bridged, bridges, ports } = ruleset;
  const names = chainNames(tag);
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
  return [
    {
      table: 'filter',
      name: names.in,
      rules: [
        ...here.filter(({ internal }) => internal).map(({ bridge }) => `-i ${bridge} ! -o ${bridge} -j DROP`),
        ...here
          .filter(({ internal }) => !internal)
          .map(({ bridge }) => `-o ${bridge} -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT`),
        ...here.flatMap((bridge) => inRules(bridge, ruleset, allPorts, family)),
      ],
    },
    ...(reachesLoopback(userlandProxy, family)
      ? [
          {
            table: 'filter',
            name: names.host,
            rules: here.map(
              ({ bridge }) => `-d 127.0.0.0/8 -i ${bridge} -m conntrack ! --ctstate RELATED,ESTABLISHED -j DROP`,
            ),
          } as const,
        ]
      : []),
    {
      table: 'filter',
      name: names.out,
      rules: here.filter(({ internal }) => !internal).map(({ bridge }) => `-i ${bridge} ! -o ${bridge} -j ACCEPT`),
    },
    { table: 'nat', name: names.dnat, rules: portsHere.flatMap((port) => portRule(port, userlandProxy)) },
    {
      table: 'nat',
      name: names.snat,
      rules: [
        ...here
          .filter(({ bridge }) => !routed.has(bridge))
          .flatMap((rules) => maskRules(rules, { userlandProxy, isKeeper: keepers.has(rules.bridge), family })),
        ...new Set(portsHere.filter(({ bridge }) => keepers.has(bridge)).map(selfRule)),
      ],
    },
  ];
}

/** Returns the rules for packets to the containers of a bridge. */
function inRules(
  { bridge, interContainer, internal, mode }: BridgeHere,
  { links }: Ruleset,
  ports: readonly PortRule[],
  family: Family,
): string[] {
  return [
    ...new Set(links.filter((link) => link.bridge === bridge && isIPv4(link.to) === (family === 4)).map(linkRule)),
    `-i ${bridge} -o ${bridge} -j ${interContainer ? 'ACCEPT' : 'DROP'}`,
    ...(internal
      ? []
      : mode === 'routed'
        ? openings(bridge, ports, family)
        : [`-o ${bridge} -m conntrack --ctstate DNAT -j ACCEPT`]),
    // A port that was not published cannot be reached, whatever the policy of the host's FORWARD chain is.
    `-o ${bridge} -j ${mode === 'nat-unprotected' && !internal ? 'ACCEPT' : 'DROP'}`,
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
): string[] {
  const source = sources[family];
  const mask = source === undefined ? 'MASQUERADE' : `SNAT --to-source ${source}`;
  return [
    ...(masquerade && !internal ? [`-s ${subnet} ! -o ${bridge} -j ${mask}`] : []),
    // A container that reaches itself or a neighbour through the host's port must get the answers from there.
    ...(internal || isKeeper ? [] : [`-s ${subnet} -o ${bridge} -m conntrack --ctstate DNAT -j MASQUERADE`]),
    ...(userlandProxy || internal || family === 6 ? [] : [`-o ${bridge} -m addrtype --src-type LOCAL -j MASQUERADE`]),
  ];
}

function linkRule({ bridge, from, to, protocol, port }: LinkRule): string {
  const length = isIPv4(to) ? 32 : 128;
  return (
    `-s ${from}/${length} -d ${to}/${length} -i ${bridge} -o ${bridge} -p ${protocol} -m ${protocol} --dport ` +
    `${port} -j ACCEPT`
  );
}

/**
 * Returns the rules for a routed network: published ports are open, and so is ICMP, which tells about the way to them.
 */
function openings(bridge: string, ports: readonly PortRule[], family: Family): string[] {
  const own = ports.filter((port) => port.bridge === bridge);
  const bits = family === 4 ? 32 : 128;
  const rules = own.map(
    ({ protocol, containerIp, containerPort }) =>
      `-d ${containerIp}/${bits} -o ${bridge} -p ${protocol} -m ${protocol} --dport ${containerPort} -j ACCEPT`,
  );
  return [...new Set(rules), `-o ${bridge} -p ${family === 4 ? 'icmp' : 'ipv6-icmp'} -j ACCEPT`];
}

/** Masks a container that reaches itself by way of the host; otherwise it would get packets from its own address. */
function selfRule({ containerIp, protocol, containerPort }: PortRule): string {
  const itself = `${containerIp}/${isIPv4(containerIp) ? 32 : 128}`;
  return `-s ${itself} -d ${itself} -p ${protocol} -m ${protocol} --dport ${containerPort} -j MASQUERADE`;
}

/** Returns the translation of one port; none if only the proxy can serve it. */
function portRule(
  { bridge, protocol, hostIp, hostPort, containerIp, containerPort }: PortRule,
  userlandProxy: boolean,
): string[] {
  const isLoopback = hostIp.startsWith('127.') || hostIp === '::1';
  if (isLoopback && (userlandProxy || hostIp === '::1')) return [];
  const isAny = hostIp === '0.0.0.0' || hostIp === '::';
  const destination = isAny ? '' : `-d ${hostIp}/${isIPv4(hostIp) ? 32 : 128} `;
  const target = isIPv4(containerIp) ? `${containerIp}:${containerPort}` : `[${containerIp}]:${containerPort}`;
  const from = userlandProxy ? `! -i ${bridge} ` : '';
  return [`${destination}${from}-p ${protocol} -m ${protocol} --dport ${hostPort} -j DNAT --to-destination ${target}`];
}

/** Returns the jumps from the kernel's chains to ours. */
export function jumpsOf({ tag, userlandProxy }: Ruleset, family: Family): Jumps[] {
  const names = chainNames(tag);
  const local = '-m addrtype --dst-type LOCAL';
  const loopback = family === 4 ? '127.0.0.0/8' : '::1/128';
  return [
    { table: 'filter', chain: 'FORWARD', rules: [`-j ${USER_CHAIN}`, `-j ${names.in}`, `-j ${names.out}`] },
    ...(reachesLoopback(userlandProxy, family)
      ? [{ table: 'filter', chain: 'INPUT', rules: [`-j ${names.host}`] } as const]
      : []),
    { table: 'nat', chain: 'PREROUTING', rules: [`${local} -j ${names.dnat}`] },
    {
      table: 'nat',
      chain: 'OUTPUT',
      rules: [`${userlandProxy || family === 6 ? `! -d ${loopback} ` : ''}${local} -j ${names.dnat}`],
    },
    { table: 'nat', chain: 'POSTROUTING', rules: [`-j ${names.snat}`] },
  ];
}
