/**
 * The firewall's rules in the words of `iptables-save`, so that they can be compared with the kernel's. The names of
 * the chains contain the daemon's tag, so several daemons can share a host.
 */
import { isIPv4 } from 'node:net';
import { mapParts } from '../text/list-parts.js';
import type { Parts } from '../text/turns.js';
import { reachesLoopback, rulesOf, type Match, type Rule, type Ruleset, type Verdict } from './firewall-rules.js';
import type { Family } from './subnet.js';

export type Table = 'filter' | 'nat';

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

/** Returns the names of all chains that any setting of the daemon makes. */
export function chainsOfTag(tag: string): readonly string[] {
  return Object.values(chainNames(tag));
}

/** Returns our chains and their contents for one family, in parts: there may be thousands of rules. */
export function* chainsOf(ruleset: Ruleset, family: Family): Parts<Chain[]> {
  const names = chainNames(ruleset.tag);
  const stages = yield* rulesOf(ruleset, family);
  // The same rule twice could not be told apart in the kernel.
  const chain = function* (table: Table, name: string, rules: readonly Rule[]): Parts<Chain> {
    const texts = yield* mapParts(rules, (rule) => ruleText(rule, family));
    return { table, name, rules: [...new Set(texts)] };
  };
  return [
    yield* chain('filter', names.in, stages.in),
    ...(stages.host ? [yield* chain('filter', names.host, stages.host)] : []),
    yield* chain('filter', names.out, stages.out),
    yield* chain('nat', names.dnat, stages.ports),
    yield* chain('nat', names.snat, stages.masks),
  ];
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
    // A container, or a neighbour of the host, may send what it likes to loopback: no port there is theirs.
    { table: 'nat', chain: 'PREROUTING', rules: [`! -d ${loopback} ${local} -j ${names.dnat}`] },
    {
      table: 'nat',
      chain: 'OUTPUT',
      rules: [`${userlandProxy || family === 6 ? `! -d ${loopback} ` : ''}${local} -j ${names.dnat}`],
    },
    { table: 'nat', chain: 'POSTROUTING', rules: [`-j ${names.snat}`] },
  ];
}

const FLOWS = {
  answer: '-m conntrack --ctstate RELATED,ESTABLISHED',
  'no-answer': '-m conntrack ! --ctstate RELATED,ESTABLISHED',
  translated: '-m conntrack --ctstate DNAT',
} as const;

/** Returns a rule as `iptables-save` prints it. */
function ruleText(rule: Rule, family: Family): string {
  const { source, destination, from, to, protocol, port, flow, isFromHost, verdict } = rule;
  const icmp = family === 4 ? 'icmp' : 'ipv6-icmp';
  return [
    source === undefined ? '' : `-s ${source}`,
    match('-d', destination),
    match('-i', from),
    match('-o', to),
    protocol === undefined ? '' : protocol === 'icmp' ? `-p ${icmp}` : `-p ${protocol} -m ${protocol}`,
    port === undefined ? '' : `--dport ${port}`,
    flow === undefined ? '' : FLOWS[flow],
    isFromHost ? '-m addrtype --src-type LOCAL' : '',
    `-j ${target(verdict)}`,
  ]
    .filter((words) => words !== '')
    .join(' ');
}

function match(option: string, wanted: Match | undefined): string {
  return wanted === undefined ? '' : `${wanted.not ? '! ' : ''}${option} ${wanted.value}`;
}

function target(verdict: Verdict): string {
  switch (verdict.kind) {
    case 'source':
      return `SNAT --to-source ${verdict.address}`;
    case 'destination': {
      const address = isIPv4(verdict.address) ? verdict.address : `[${verdict.address}]`;
      return `DNAT --to-destination ${address}:${verdict.port}`;
    }
    default:
      return verdict.kind.toUpperCase();
  }
}
