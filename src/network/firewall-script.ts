/**
 * Makes the shortest script for `iptables-restore --noflush` that turns the kernel's rules into the wanted ones. Pure,
 * and done in parts where there may be thousands of rules.
 */
import { mapParts } from '../text/list-parts.js';
import type { Parts } from '../text/turns.js';
import { USER_CHAIN, type Chain, type Jumps, type Table } from './iptables-rules.js';

/** Chains of one family by table, each with its rules without `-A NAME`. */
export type Tables = ReadonlyMap<string, ReadonlyMap<string, readonly string[]>>;

/** The tables that have rules of ours. */
const TABLES = ['filter', 'nat'] as const;
/** So many lines are parsed together. */
const LINES = 500;

/**
 * The common beginning of several daemons' jumps for incoming packets: all of these come before any jump for outgoing
 * ones.
 */
const IN_STAGE = /^-j ENGINE-IN-/;

/** Parses the output of `iptables-save`, in parts: it has the rules of the whole machine. */
export function* parseTables(saved: string): Parts<Tables> {
  const tables = new Map<string, Map<string, string[]>>();
  let chains = new Map<string, string[]>();
  for (const [at, line] of saved.split('\n').entries()) {
    if (at % LINES === 0) yield;
    if (line.startsWith('*')) tables.set(line.slice(1), (chains = new Map()));
    else if (line.startsWith(':')) chains.set(line.slice(1, line.indexOf(' ')), []);
    else if (line.startsWith('-A ')) {
      const end = line.indexOf(' ', 3);
      chains.get(line.slice(3, end))?.push(line.slice(end + 1));
    }
  }
  return tables;
}

/**
 * Returns the script that leads to `chains` and `jumps`; '' when there is nothing to do. `names` are those of all
 * chains that the daemon may have made: of these, and of the rules that lead to them, it removes what is not wanted,
 * which an earlier run or version has left.
 */
export function* restoreScript(
  current: Tables,
  chains: readonly Chain[],
  jumps: readonly Jumps[],
  names: readonly string[] = [],
): Parts<string> {
  const made: TableLines[] = [];
  for (const table of TABLES) {
    const here = current.get(table);
    const wanted = jumps.filter((jump) => jump.table === table);
    const stale = [...(here ?? [])]
      .filter(([chain]) => !names.includes(chain))
      .map(([chain, rules]) => {
        const kept = wanted.find((jump) => jump.chain === chain)?.rules ?? [];
        return { chain, rules: rules.filter((rule) => names.includes(targetOf(rule) ?? '') && !kept.includes(rule)) };
      });
    const left = (chain: string): readonly string[] => {
      const gone = stale.find((jump) => jump.chain === chain)?.rules ?? [];
      return (here?.get(chain) ?? []).filter((rule) => !gone.includes(rule));
    };
    const unused = names.filter((name) => here?.has(name) && !chains.some((chain) => chain.name === name));
    const needsUserChain =
      wanted.some(({ rules }) => rules.includes(`-j ${USER_CHAIN}`)) && here?.has(USER_CHAIN) !== true;
    const edits: ChainEdit[] = [];
    for (const chain of chains)
      if (chain.table === table) edits.push(yield* chainEdit(chain.name, here?.get(chain.name), chain.rules));
    const lines = [
      // The chain is not declared, because that would empty it if somebody had made it meanwhile.
      ...(needsUserChain ? [`-N ${USER_CHAIN}`] : []),
      ...edits.flatMap(({ declare }) => declare),
      ...edits.flatMap((edit) => edit.lines),
      ...stale.flatMap(({ chain, rules }) => rules.map((rule) => `-D ${chain} ${rule}`)),
      ...wanted.flatMap(({ chain, rules }) => jumpEdit(chain, left(chain), rules)),
      ...removal(unused),
    ];
    made.push({ table, lines });
    yield;
  }
  return script(made);
}

/**
 * Returns the script that removes chains and what leads to them. The users' chain stays while it has rules or somebody
 * else uses it.
 */
export function removalScript(current: Tables, names: readonly string[]): string {
  const linesOf = (table: Table): string[] => {
    const here = current.get(table);
    if (!here) return [];
    const ours = names.filter((name) => here.has(name));
    const hasOthers = [...here].some(([chain, rules]) =>
      rules.some((rule) =>
        chain === 'FORWARD' && IN_STAGE.test(rule)
          ? !ours.includes(rule.slice('-j '.length))
          : targetOf(rule) === USER_CHAIN && !(chain === 'FORWARD' && rule === `-j ${USER_CHAIN}`),
      ),
    );
    const gone = here.get(USER_CHAIN)?.length === 0 && !hasOthers ? [...ours, USER_CHAIN] : ours;
    return [
      // A chain to which any rule leads, also one of somebody else, cannot be removed.
      ...[...here].flatMap(([chain, rules]) =>
        gone.includes(chain)
          ? []
          : rules.filter((rule) => gone.includes(targetOf(rule) ?? '')).map((rule) => `-D ${chain} ${rule}`),
      ),
      ...removal(gone),
    ];
  };
  return script(TABLES.map((table) => ({ table, lines: linesOf(table) })));
}

function removal(chains: readonly string[]): string[] {
  return [...chains.map((name) => `-F ${name}`), ...chains.map((name) => `-X ${name}`)];
}

/** Returns the chain that a rule leads to, if nothing follows its name, as in all rules that lead to a chain. */
function targetOf(rule: string): string | undefined {
  const end = rule.lastIndexOf(' ');
  const verb = rule.slice(Math.max(0, end - 2), end);
  const isAlone = end === 2 || rule[end - 3] === ' ';
  return isAlone && (verb === '-j' || verb === '-g') ? rule.slice(end + 1) : undefined;
}

interface TableLines {
  readonly table: Table;
  readonly lines: readonly string[];
}

function script(tables: readonly TableLines[]): string {
  return tables
    .flatMap(({ table, lines }) => (lines.length === 0 ? [] : [`*${table}`, ...lines, 'COMMIT']))
    .map((line) => `${line}\n`)
    .join('');
}

interface ChainEdit {
  readonly declare: readonly string[];
  readonly lines: readonly string[];
}

/**
 * Returns the lines that change one chain. Where it is enough, old rules are deleted and new ones appended; else the
 * chain is written anew, in one step.
 */
function* chainEdit(name: string, current: readonly string[] | undefined, wanted: readonly string[]): Parts<ChainEdit> {
  const add = (rule: string): string => `-A ${name} ${rule}`;
  if (current) {
    const wantedSet = new Set(wanted);
    yield;
    const kept = current.filter((rule) => wantedSet.has(rule));
    yield;
    if (kept.every((rule, index) => rule === wanted[index]) && new Set(current).size === current.length) {
      yield;
      const gone = current.filter((rule) => !wantedSet.has(rule));
      return {
        declare: [],
        lines: [...gone.map((rule) => `-D ${name} ${rule}`), ...(yield* mapParts(wanted.slice(kept.length), add))],
      };
    }
  }
  return { declare: [`:${name} - [0:0]`], lines: yield* mapParts(wanted, add) };
}

/**
 * Puts our jumps before foreign rules, but after other daemons' jumps for incoming packets. Returns nothing if they are
 * there already.
 */
function jumpEdit(chain: string, current: readonly string[], wanted: readonly string[]): string[] {
  const places = wanted.map((rule) => current.indexOf(rule));
  const isOrdered = places.every((place, index) => place >= 0 && (index === 0 || place > (places[index - 1] ?? 0)));
  if (isOrdered) return [];
  // All daemons share the jump to the users' chain, so it stays where it is.
  const ours = wanted.filter((rule) => rule !== `-j ${USER_CHAIN}`);
  const lines = current.filter((rule) => ours.includes(rule)).map((rule) => `-D ${chain} ${rule}`);
  const list = current.filter((rule) => !ours.includes(rule));
  let at = 0;
  for (const rule of wanted) {
    const existing = list.indexOf(rule);
    if (existing >= 0) {
      at = existing + 1;
      continue;
    }
    // A packet must not be accepted here before another daemon's bridge could refuse it.
    if (rule.startsWith('-j ENGINE-OUT-')) at = Math.max(at, list.findLastIndex((other) => IN_STAGE.test(other)) + 1);
    list.splice(at, 0, rule);
    at++;
    lines.push(`-I ${chain} ${at} ${rule}`);
  }
  return lines;
}
