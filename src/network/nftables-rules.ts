/**
 * The firewall's rules in the words of nft: chains of a table of our own, one for each daemon, so that several can
 * share a host. Each rule has a comment that identifies it: nft prints a rule in other words than those that it was
 * made with.
 */
import { createHash } from 'node:crypto';
import { isIPv4 } from 'node:net';
import { mapParts } from '../text/list-parts.js';
import type { Parts } from '../text/turns.js';
import { rulesOf, type Match, type Rule, type Ruleset, type Verdict } from './firewall-rules.js';
import type { Family } from './subnet.js';

export interface NftChain {
  readonly name: string;
  /** Where the kernel sends packets to the chain; undefined if other chains do. */
  readonly hook?: string;
  /** Rules, each with its comment. */
  readonly rules: readonly string[];
}

/** Translations of published ports. */
export const PORTS_CHAIN = 'ports';
/** All chains that any setting of the daemon makes. */
export const CHAIN_NAMES: ReadonlySet<string> = new Set([
  PORTS_CHAIN,
  'forward',
  'input',
  'prerouting',
  'output',
  'postrouting',
]);

export const familyName = (family: Family): 'ip' | 'ip6' => (family === 4 ? 'ip' : 'ip6');

/** Returns the name of the daemon's tables. Characters that nft does not have in their names are written as numbers. */
export function tableName(tag: string): string {
  return `engine-bridges-${tag.replaceAll(/[^A-Za-z0-9.-]/g, (each) => `_${each.charCodeAt(0).toString(16)}`)}`;
}

/**
 * Adds the comments to rules. A digest takes some microseconds, and every change writes all rules anew, of which there
 * may be thousands: so those of the change before are kept.
 */
export class RuleComments {
  #before: ReadonlyMap<string, string> = new Map();
  #now = new Map<string, string>();

  /** Begins a change: comments that the change before has not asked for are forgotten. */
  begin(): void {
    this.#before = this.#now;
    this.#now = new Map();
  }

  /** Returns a rule with its comment. */
  add(rule: string): string {
    const known = this.#now.get(rule) ?? this.#before.get(rule) ?? commented(rule);
    this.#now.set(rule, known);
    return known;
  }
}

function commented(rule: string): string {
  return `${rule} comment "engine-${createHash('sha256').update(rule).digest('hex').slice(0, 24)}"`;
}

/** Returns our chains and their contents for one family, in parts: there may be thousands of rules. */
export function* nftChains(ruleset: Ruleset, family: Family, comments = new RuleComments()): Parts<NftChain[]> {
  comments.begin();
  const { in: into, out, host, ports, masks } = yield* rulesOf(ruleset, family);
  // A rule that is there twice is written once.
  const identified = (rules: readonly string[]): Parts<string[]> =>
    mapParts(new Set(rules), (rule) => comments.add(rule));
  const texts = function* (rules: readonly Rule[]): Parts<string[]> {
    return yield* identified(yield* mapParts(rules, (rule) => ruleText(rule, family)));
  };
  const toPorts = `fib daddr type local jump ${PORTS_CHAIN}`;
  const notLoopback = family === 4 ? 'ip daddr != 127.0.0.0/8 ' : 'ip6 daddr != ::1 ';
  return [
    { name: PORTS_CHAIN, rules: yield* texts(ports) },
    { name: 'forward', hook: 'type filter hook forward priority 0', rules: yield* texts([...into, ...out]) },
    ...(host ? [{ name: 'input', hook: 'type filter hook input priority 0', rules: yield* texts(host) }] : []),
    // A container, or a neighbour of the host, may send what it likes to loopback: no port there is theirs.
    {
      name: 'prerouting',
      hook: 'type nat hook prerouting priority -100',
      rules: yield* identified([`${notLoopback}${toPorts}`]),
    },
    {
      name: 'output',
      hook: 'type nat hook output priority -100',
      rules: yield* identified([`${ruleset.userlandProxy || family === 6 ? notLoopback : ''}${toPorts}`]),
    },
    { name: 'postrouting', hook: 'type nat hook postrouting priority 100', rules: yield* texts(masks) },
  ];
}

const FLOWS = {
  answer: 'ct state { established, related }',
  'no-answer': 'ct state != { established, related }',
  translated: 'ct status dnat',
} as const;

function ruleText(rule: Rule, family: Family): string {
  const { source, destination, from, to, protocol, port, flow, isFromHost, verdict } = rule;
  const ip = familyName(family);
  const icmp = family === 4 ? 'icmp' : 'ipv6-icmp';
  return [
    source === undefined ? '' : `${ip} saddr ${source}`,
    match(`${ip} daddr`, destination, (address) => address),
    match('iifname', from, quoted),
    match('oifname', to, quoted),
    protocol === undefined ? '' : protocol === 'icmp' ? `meta l4proto ${icmp}` : `${protocol} dport ${port}`,
    flow === undefined ? '' : FLOWS[flow],
    isFromHost ? 'fib saddr type local' : '',
    action(verdict),
  ]
    .filter((words) => words !== '')
    .join(' ');
}

function match(key: string, wanted: Match | undefined, print: (value: string) => string): string {
  return wanted === undefined ? '' : `${key} ${wanted.not ? '!= ' : ''}${print(wanted.value)}`;
}

/** Names of bridges have no character that nft would take for something else (bridge-name.ts). */
const quoted = (link: string): string => `"${link}"`;

function action(verdict: Verdict): string {
  switch (verdict.kind) {
    case 'source':
      return `snat to ${verdict.address}`;
    case 'destination': {
      const address = isIPv4(verdict.address) ? verdict.address : `[${verdict.address}]`;
      return `dnat to ${address}:${verdict.port}`;
    }
    default:
      return verdict.kind;
  }
}
