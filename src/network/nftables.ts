/** The commands that read and write the kernel's packet filter by nft. */
import { internal, isEngineError, messageOf } from '../errors/engine-error.js';
import { lacksNftTable } from '../sys/netlink/netfilter.js';
import { runProgram, type ProgramResult } from '../sys/process/spawn.js';
import { inTurns } from '../text/turns.js';
import { familyName } from './nftables-rules.js';
import { parseTable, type NftTable } from './nftables-script.js';
import type { Family } from './subnet.js';

const MAX_MESSAGE = 500;

/** Reads a table; undefined if there is none of this name. Throws internal, code FIREWALL. */
export async function readTable(name: string, family: Family): Promise<NftTable | undefined> {
  if (lacksNftTable(family, name)) return undefined;
  return inTurns(parseTable(await checked(['--numeric', 'list', 'table', familyName(family), name])));
}

/** Applies a script as a whole or not at all. Throws internal, code FIREWALL, with the message of nft. */
export async function applyNftScript(script: string): Promise<void> {
  if (script !== '') await checked(['--file', '-'], script);
}

async function checked(args: readonly string[], input = ''): Promise<string> {
  const result = await nft(args, input);
  if (result.exitCode !== 0) throw failure(result);
  return result.stdout;
}

async function nft(args: readonly string[], input = ''): Promise<ProgramResult> {
  return runProgram('nft', args, input).catch((error: unknown) => {
    const reason =
      isEngineError(error) && error.code === 'ENOENT'
        ? 'nft is not installed (Debian package nftables); start with --iptables=false to do without'
        : `nft: ${messageOf(error)}`;
    throw internal(reason, { code: 'FIREWALL', cause: error });
  });
}

/** The message is cut: nft may print every line of a script that it refuses. */
function failure({ stderr }: ProgramResult): Error {
  return internal(`nft failed: ${stderr.trim().slice(0, MAX_MESSAGE)}`, { code: 'FIREWALL' });
}
