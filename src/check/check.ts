/**
 * `engined check` tells what this machine gives a daemon with this configuration, row by row. Options that this host
 * cannot fulfil were refused before, as at a start. It changes nothing.
 */
import type { Config } from '../config/config.js';
import { type HostFacts, readHostFacts } from '../runtime/host-facts.js';
import { nearestDirectory } from '../storage/drivers/selection.js';
import { confinementRows } from './confinement.js';
import { controlGroupRows } from './control-groups.js';
import { kernelRows } from './kernel.js';
import { programRows } from './programs.js';
import { type Row, statusOf, worstOf } from './row.js';
import { storageRows } from './storage.js';
import { versionRows } from './versions.js';

const NAME_COLUMNS = 20;
const VERDICT_COLUMNS = 8;

/** Prints the table as text or JSON. Returns the exit status of the worst row: 0, 2 for a warning, 1 for a failure. */
export async function runCheck(config: Config, isJson: boolean, print: (line: string) => void): Promise<number> {
  const rows = await hostRows(config, await readHostFacts(config));
  if (isJson) print(JSON.stringify({ verdict: worstOf(rows), rows }, undefined, 2));
  else for (const line of textOf(rows)) print(line);
  return statusOf(rows);
}

async function hostRows(config: Config, facts: HostFacts): Promise<Row[]> {
  const [kernel, confinement, versions] = await Promise.all([
    kernelRows(facts, nearestDirectory(config.dataRoot)),
    confinementRows(facts, config),
    versionRows(config),
  ]);
  const others = [controlGroupRows(facts), storageRows(config), programRows(config, facts)];
  return [kernel, confinement, ...others, versions].flat();
}

function textOf(rows: readonly Row[]): string[] {
  const lines = rows.map(
    ({ name, verdict, text }) => `${verdict.padEnd(VERDICT_COLUMNS)} ${name.padEnd(NAME_COLUMNS)} ${text}`,
  );
  return worstOf(rows) === 'failure' ? lines : [...lines, 'this machine has what the daemon needs'];
}
