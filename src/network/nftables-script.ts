/** Makes the shortest script for `nft -f` that turns a table of the kernel into the wanted one. Pure. */
import { CHAIN_NAMES, familyName, type NftChain } from './nftables-rules.js';
import type { Family } from './subnet.js';

/** Chains of a table, each with its rules as nft prints them. */
export type NftTable = ReadonlyMap<string, readonly string[]>;

/** Parses the output of `nft list table`. */
export function parseTable(listing: string): NftTable {
  const table = new Map<string, string[]>();
  let rules: string[] | undefined;
  for (const line of listing.split('\n').map((each) => each.trim())) {
    if (line.startsWith('chain ') && line.endsWith(' {')) {
      rules = [];
      table.set(line.slice('chain '.length, -' {'.length), rules);
    } else if (line === '}') rules = undefined;
    else if (rules && line !== '' && !line.startsWith('type ') && !line.startsWith('policy ')) rules.push(line);
  }
  return table;
}

/** Returns what identifies a rule: its comment, or all of a rule that somebody else has made. */
export function identity(rule: string): string {
  const at = rule.lastIndexOf(' comment "engine-');
  return at < 0 ? rule : rule.slice(at);
}

/** Returns the script that makes the table's chains the wanted ones; '' when there is nothing to do. */
export function tableScript(name: string, family: Family, current: NftTable, chains: readonly NftChain[]): string {
  const table = `${familyName(family)} ${name}`;
  const wanted = new Set(chains.map((chain) => chain.name));
  const stale = [...current.keys()].filter((chain) => CHAIN_NAMES.has(chain) && !wanted.has(chain));
  const changed = chains.filter((chain) => {
    const rules = current.get(chain.name)?.map(identity);
    return rules?.length !== chain.rules.length || !chain.rules.every((rule, index) => identity(rule) === rules[index]);
  });
  if (changed.length === 0 && stale.length === 0) return '';
  return [
    `add table ${table}`,
    // All chains are there before a rule names one. Those that nobody has removed meanwhile stay as they are.
    ...chains.map(
      (chain) => `add chain ${table} ${chain.name}${chain.hook === undefined ? '' : ` { ${chain.hook}; }`}`,
    ),
    ...[...changed.map((chain) => chain.name), ...stale].map((chain) => `flush chain ${table} ${chain}`),
    ...stale.map((chain) => `delete chain ${table} ${chain}`),
    ...changed.flatMap((chain) => chain.rules.map((rule) => `add rule ${table} ${chain.name} ${rule}`)),
  ]
    .map((line) => `${line}\n`)
    .join('');
}

/** Returns the script that removes a table, whether it is there or not. */
export function tableRemoval(name: string, family: Family): string {
  const table = `${familyName(family)} ${name}`;
  return `add table ${table}\ndelete table ${table}\n`;
}
