/**
 * The firewall of one bridge: rules as data, applied in one atomic `iptables-restore --noflush`. All rules stand in
 * chains that carry the bridge's name, so daemons on one host do not meet, and foreign rules are never touched.
 */
import { spawn } from 'node:child_process';
import { internal } from '../errors/engine-error.js';
import type { PublishedPort } from '../ports/network.js';

export interface BridgeRules {
  readonly bridge: string;
  /** CIDR. */
  readonly subnet: string;
  readonly masquerade: boolean;
  readonly interContainer: boolean;
}

/** A rule: table, chain and its words. */
export interface Rule {
  readonly table: 'filter' | 'nat';
  readonly chain: string;
  readonly words: readonly string[];
}

const forwardChain = (bridge: string): string => `ENGINE-FWD-${bridge}`;
const portChain = (bridge: string): string => `ENGINE-PORT-${bridge}`;
const natChain = (bridge: string): string => `ENGINE-DNAT-${bridge}`;
const sourceChain = (bridge: string): string => `ENGINE-SNAT-${bridge}`;

/** Jumps from the kernel's chains into ours. */
export function jumps({ bridge }: BridgeRules): Rule[] {
  return [
    { table: 'filter', chain: 'FORWARD', words: ['-j', forwardChain(bridge)] },
    { table: 'nat', chain: 'PREROUTING', words: ['-m', 'addrtype', '--dst-type', 'LOCAL', '-j', natChain(bridge)] },
    { table: 'nat', chain: 'OUTPUT', words: ['!', '-d', '127.0.0.0/8', '-m', 'addrtype', '--dst-type', 'LOCAL', '-j', natChain(bridge)] },
    { table: 'nat', chain: 'POSTROUTING', words: ['-j', sourceChain(bridge)] },
  ];
}

/** Chains of ours, by table. */
export function chains({ bridge }: BridgeRules): { readonly table: Rule['table']; readonly chain: string }[] {
  return [
    { table: 'filter', chain: forwardChain(bridge) },
    { table: 'filter', chain: portChain(bridge) },
    { table: 'nat', chain: natChain(bridge) },
    { table: 'nat', chain: sourceChain(bridge) },
  ];
}

/** What stands in our chains before any port is published. */
export function baseRules({ bridge, subnet, masquerade, interContainer }: BridgeRules): Rule[] {
  const forward = (...words: string[]): Rule => ({ table: 'filter', chain: forwardChain(bridge), words });
  const rules = [
    forward('-o', bridge, '-m', 'conntrack', '--ctstate', 'RELATED,ESTABLISHED', '-j', 'ACCEPT'),
    forward('-o', bridge, '-j', portChain(bridge)),
    forward('-i', bridge, '-o', bridge, '-j', interContainer ? 'ACCEPT' : 'DROP'),
    forward('-i', bridge, '!', '-o', bridge, '-j', 'ACCEPT'),
    // What was not published is not reachable, whatever the policy of the host's FORWARD chain is.
    forward('-o', bridge, '-j', 'DROP'),
  ];
  if (masquerade) rules.push({ table: 'nat', chain: sourceChain(bridge), words: ['-s', subnet, '!', '-o', bridge, '-j', 'MASQUERADE'] });
  return rules;
}

/** The rules of one published port. */
export function portRules(bridge: string, address: string, port: PublishedPort): Rule[] {
  const destination = port.hostIp === '' || port.hostIp === '0.0.0.0' ? [] : ['-d', `${port.hostIp}/32`];
  const container = ['-p', port.protocol, '-d', `${address}/32`, '--dport', String(port.containerPort)];
  return [
    { table: 'nat', chain: natChain(bridge), words: ['-p', port.protocol, ...destination, '--dport', String(port.hostPort), '-j', 'DNAT', '--to-destination', `${address}:${port.containerPort}`] },
    // A container that reaches itself or a neighbour through the host's port must see answers from there.
    { table: 'nat', chain: sourceChain(bridge), words: ['-o', bridge, '-m', 'conntrack', '--ctstate', 'DNAT', '-s', `${address}/32`, ...container, '-j', 'MASQUERADE'] },
    { table: 'filter', chain: portChain(bridge), words: [...container, '-j', 'ACCEPT'] },
  ];
}

/** The script for `iptables-restore`: chains to make or empty, rules to append (or insert) or delete, by table. */
export function restoreScript(edit: { readonly declare?: readonly { readonly table: Rule['table']; readonly chain: string }[]; readonly insert?: readonly Rule[]; readonly append?: readonly Rule[]; readonly remove?: readonly Rule[]; readonly drop?: readonly { readonly table: Rule['table']; readonly chain: string }[] }): string {
  const lines: string[] = [];
  for (const table of ['filter', 'nat'] as const) {
    const of = <T extends { readonly table: Rule['table'] }>(list: readonly T[] | undefined): readonly T[] => (list ?? []).filter((item) => item.table === table);
    const body = [
      ...of(edit.declare).map(({ chain }) => `:${chain} - [0:0]`),
      ...of(edit.remove).map(({ chain, words }) => `-D ${chain} ${words.join(' ')}`),
      ...of(edit.append).map(({ chain, words }) => `-A ${chain} ${words.join(' ')}`),
      ...of(edit.insert).map(({ chain, words }) => `-I ${chain} ${words.join(' ')}`),
      ...of(edit.drop).flatMap(({ chain }) => [`-F ${chain}`]),
      ...of(edit.drop).map(({ chain }) => `-X ${chain}`),
    ];
    if (body.length > 0) lines.push(`*${table}`, ...body, 'COMMIT');
  }
  return lines.map((line) => `${line}\n`).join('');
}

/** Applies a script: all of it or, per table, nothing. Throws internal with what iptables said. */
export async function applyScript(script: string): Promise<void> {
  if (script === '') return;
  await run('iptables-restore', ['--wait', '5', '--noflush'], script);
}

/** The jumps that are missing: they are compared as `iptables-save` prints them. */
export async function missingJumps(rules: BridgeRules): Promise<{ readonly missing: Rule[]; readonly present: Rule[] }> {
  const saved = new Map<string, Set<string>>();
  // Chains of one name may stand in several tables: a line counts for the table that it follows.
  let table = new Set<string>();
  for (const line of (await run('iptables-save', [], '')).split('\n')) {
    if (line.startsWith('*')) saved.set(line.slice(1), (table = new Set()));
    else table.add(line);
  }
  const missing: Rule[] = [];
  const present: Rule[] = [];
  for (const rule of jumps(rules)) (saved.get(rule.table)?.has(`-A ${rule.chain} ${rule.words.join(' ')}`) === true ? present : missing).push(rule);
  return { missing, present };
}

function run(command: string, args: readonly string[], input: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const child = spawn(command, args, { stdio: 'pipe' });
    const out: Buffer[] = [];
    const errors: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => out.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => errors.push(chunk));
    child.on('error', (error: NodeJS.ErrnoException) =>
      reject(internal(error.code === 'ENOENT' ? `${command} is not installed (Debian package iptables); start with --iptables=false to do without` : `${command}: ${error.message}`, { cause: error })),
    );
    child.on('close', (code) => {
      if (code === 0) resolve(Buffer.concat(out).toString());
      else reject(internal(`${command} failed: ${Buffer.concat(errors).toString().trim()}`, { code: 'FIREWALL' }));
    });
    child.stdin.on('error', () => undefined);
    child.stdin.end(input);
  });
}
