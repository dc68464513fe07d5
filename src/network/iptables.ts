/** The commands that read and write the kernel's packet filter. */
import { realpath } from 'node:fs/promises';
import { basename } from 'node:path';
import { internal, isEngineError, messageOf } from '../errors/engine-error.js';
import { lacksNftTable } from '../sys/netlink/netfilter.js';
import { findOnPath } from '../sys/process/on-path.js';
import { runProgram } from '../sys/process/spawn.js';
import { inTurns } from '../text/turns.js';
import { parseTables, type Tables } from './firewall-script.js';
import type { Family } from './subnet.js';

/** The commands wait this long for others that hold the lock of the legacy back end. */
const LOCK_SECONDS = '10';

/** The tables that iptables knows (iptables(8)). */
const TABLES = ['filter', 'nat', 'mangle', 'raw', 'security'];

const prefix = (family: Family): string => (family === 4 ? 'iptables' : 'ip6tables');

export interface FoundTables {
  readonly tables: Tables;
  /** True when the policy refuses packets that are not for the host and that no rule accepts. */
  readonly dropsForwarded: boolean;
}

/**
 * Reads all tables that exist; `legacy`: as `isLegacy` says. No program is started where the kernel has none of them.
 * Throws internal, code FIREWALL.
 */
export async function readTables(family: Family, legacy: boolean): Promise<FoundTables> {
  const program = `${prefix(family)}-save`;
  // A program that is not there is started all the same: its failure says what is missing.
  const areNone = !legacy && findOnPath(program) !== undefined && TABLES.every((name) => lacksNftTable(family, name));
  const saved = areNone ? '' : await run(program, [], '');
  const filter = saved.split('\n*').find((table) => /^\*?filter\n/.test(table)) ?? '';
  return { tables: await inTurns(parseTables(saved)), dropsForwarded: filter.includes('\n:FORWARD DROP ') };
}

/** Returns the command that makes the policy accept packets that are not for the host. */
export function acceptForwarded(family: Family): string {
  return `${prefix(family)} -P FORWARD ACCEPT`;
}

/**
 * Applies a script: each table as a whole or not at all. Throws internal, code FIREWALL, with the message of iptables.
 */
export async function applyScript(family: Family, script: string): Promise<void> {
  if (script !== '') await run(`${prefix(family)}-restore`, ['--wait', LOCK_SECONDS, '--noflush'], script);
}

/**
 * Tells whether the commands write to the tables of the kernel's old packet filter. Throws internal, code FIREWALL.
 * They are links to one of two programs, whose names say it; another program is asked.
 */
export async function isLegacy(): Promise<boolean> {
  const file = findOnPath('iptables');
  const name = file === undefined ? '' : basename(await realpath(file).catch(() => ''));
  if (name === 'xtables-nft-multi' || name === 'xtables-legacy-multi') return name === 'xtables-legacy-multi';
  return (await run('iptables', ['--version'], '')).includes('legacy');
}

async function run(command: string, args: readonly string[], input: string): Promise<string> {
  const result = await runProgram(command, args, input).catch((error: unknown) => {
    const reason =
      isEngineError(error) && error.code === 'ENOENT'
        ? `${command} is not installed (Debian package iptables); start with --iptables=false to do without`
        : `${command}: ${messageOf(error)}`;
    throw internal(reason, { code: 'FIREWALL', cause: error });
  });
  if (result.exitCode !== 0) throw internal(`${command} failed: ${result.stderr.trim()}`, { code: 'FIREWALL' });
  return result.stdout;
}
