/** The process list of a container, made by the host's `ps`. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { internal, invalid, messageOf } from '../../errors/engine-error.js';

const run = promisify(execFile);

/** Processes as `ps` lists them: the names of the columns, and a row each. */
export interface ProcessList {
  readonly titles: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/**
 * Runs `ps` with the client's arguments and keeps the rows of `pids`. Throws invalid for arguments that hide the PID.
 */
export async function runPs(pids: readonly number[], args: string): Promise<ProcessList> {
  const words = args.split(/\s+/).filter(Boolean);
  const output = await run('ps', words, { maxBuffer: 64 << 20 }).catch((error: unknown) => {
    throw internal(`ps: ${firstLine(error)}`, { cause: error });
  });
  const [header = '', ...lines] = output.stdout.split('\n').filter((line) => line !== '');
  const titles = header.trim().split(/\s+/);
  const pidColumn = titles.indexOf('PID');
  if (pidColumn === -1) throw invalid("Couldn't find PID field in ps output");
  const wanted = new Set(pids.map(String));
  const rows = lines.map((line) => splitRow(line, titles.length)).filter((row) => wanted.has(row[pidColumn] ?? ''));
  return { titles, rows };
}

/** Returns what the program itself says of its failure. */
function firstLine(error: unknown): string {
  const stderr = error instanceof Error && 'stderr' in error && typeof error.stderr === 'string' ? error.stderr : '';
  return stderr.split('\n').find((line) => line !== '') ?? messageOf(error);
}

/** Splits a row into columns; what is left over belongs to the last one. */
function splitRow(line: string, columns: number): string[] {
  const words = line.trim().split(/\s+/);
  return words.length <= columns ? words : [...words.slice(0, columns - 1), words.slice(columns - 1).join(' ')];
}
