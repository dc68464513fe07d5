/**
 * Makes the shortest script for `nft -f` that turns a table of the kernel into the wanted one. Pure, and done in parts
 * where there may be thousands of rules.
 */
import type { Parts } from '../text/turns.js';
import { CHAIN_NAMES, familyName, type NftChain } from './nftables-rules.js';
import type { Family } from './subnet.js';

/** Chains of a table, each with its rules as nft prints them. */
export type NftTable = ReadonlyMap<string, readonly string[]>;

/** So many rules are looked at together. */
const RULES = 500;

/** Parses the output of `nft list table`. */
export function* parseTable(listing: string): Parts<NftTable> {
  const table = new Map<string, string[]>();
  let rules: string[] | undefined;
  for (const [at, text] of listing.split('\n').entries()) {
    if (at % RULES === 0) yield;
    const line = text.trim();
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
export function* tableScript(
  name: string,
  family: Family,
  current: NftTable,
  chains: readonly NftChain[],
): Parts<string> {
  const table = `${familyName(family)} ${name}`;
  const wanted = new Set(chains.map((chain) => chain.name));
  const stale = [...current.keys()].filter((chain) => CHAIN_NAMES.has(chain) && !wanted.has(chain));
  const edits: ChainEdit[] = [];
  for (const chain of chains) edits.push(yield* chainEdit(current.get(chain.name), chain));
  if (edits.every(({ isNew, rules }) => !isNew && rules.length === 0) && stale.length === 0) return '';
  return [
    `add table ${table}`,
    // All chains are there before a rule names one. Those that nobody has removed meanwhile stay as they are.
    ...chains.map(
      (chain) => `add chain ${table} ${chain.name}${chain.hook === undefined ? '' : ` { ${chain.hook}; }`}`,
    ),
    ...edits.filter(({ isNew }) => isNew).map(({ name }) => `flush chain ${table} ${name}`),
    ...stale.flatMap((chain) => [`flush chain ${table} ${chain}`, `delete chain ${table} ${chain}`]),
    ...edits.flatMap(({ name, rules }) => rules.map((rule) => `add rule ${table} ${name} ${rule}`)),
  ]
    .map((line) => `${line}\n`)
    .join('');
}

interface ChainEdit {
  readonly name: string;
  readonly isNew: boolean;
  readonly rules: readonly string[];
}

/**
 * Returns the rules to add to a chain. Where they do not come after those that are there, the chain `isNew`: it is
 * emptied and written as a whole, in the same transaction.
 */
function* chainEdit(current: readonly string[] | undefined, { name, rules }: NftChain): Parts<ChainEdit> {
  let isKept = current !== undefined;
  for (const [index, rule] of (current ?? []).entries()) {
    isKept = identity(rule) === identity(rules[index] ?? '');
    if (!isKept) break;
    if (index % RULES === 0) yield;
  }
  return { name, isNew: !isKept, rules: isKept ? rules.slice(current?.length) : rules };
}

/** Returns the script that removes a table, whether it is there or not. */
export function tableRemoval(name: string, family: Family): string {
  const table = `${familyName(family)} ${name}`;
  return `add table ${table}\ndelete table ${table}\n`;
}
