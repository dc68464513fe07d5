/**
 * The process list of a container, made by the host's `ps`. Processes make their command lines as long as they like,
 * so these are read in parts, which hold nothing else up.
 */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { internal, invalid, messageOf } from '../../errors/engine-error.js';
import { inTurns, type Parts } from '../../text/turns.js';

const run = promisify(execFile);

/** Processes as `ps` lists them: the names of the columns, and a row each. */
export interface ProcessList {
  readonly titles: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

const MAX_OUTPUT_BYTES = 64 << 20;
const NEWLINE = 0x0a;
/** A part of the work is that of so many bytes, or of one line. */
const PART_BYTES = 32 * 1024;

/**
 * Runs `ps` with the client's arguments and keeps the rows of `pids`. Throws invalid for arguments that hide the PID.
 */
export async function runPs(pids: readonly number[], args: string): Promise<ProcessList> {
  const words = args.split(/\s+/).filter(Boolean);
  // Some arguments, such as those for a tree, are refused beside a list of processes; then all of the host are listed.
  const output = await ps([...words, `-q${pids.join(',')}`]).catch(() => ps(words));
  return inTurns(listed(output, new Set(pids.map(String))));
}

async function ps(words: readonly string[]): Promise<Buffer> {
  try {
    return (await run('ps', words, { maxBuffer: MAX_OUTPUT_BYTES, encoding: 'buffer' })).stdout;
  } catch (error) {
    throw internal(`ps: ${firstLine(error)}`, { cause: error });
  }
}

/** Returns what the program itself says of its failure. */
function firstLine(error: unknown): string {
  const stderr = error instanceof Error && 'stderr' in error && error.stderr instanceof Buffer ? error.stderr : '';
  return (
    stderr
      .toString()
      .split('\n')
      .find((line) => line !== '') ?? messageOf(error)
  );
}

function* listed(output: Buffer, wanted: ReadonlySet<string>): Parts<ProcessList> {
  let titles: readonly string[] | undefined;
  let pidColumn = -1;
  const rows: string[][] = [];
  let untilPart = PART_BYTES;
  for (let at = 0; at < output.length;) {
    const newline = output.indexOf(NEWLINE, at);
    const end = newline === -1 ? output.length : newline;
    if (titles === undefined) {
      titles = output.toString('utf8', at, end).trim().split(/\s+/);
      pidColumn = titles.indexOf('PID');
      if (pidColumn === -1) break;
    } else if (end > at) {
      const row = splitRow(output.toString('utf8', at, end), titles.length);
      if (wanted.has(row[pidColumn] ?? '')) rows.push(row);
    }
    at = end + 1;
    if (at < untilPart) continue;
    untilPart = at + PART_BYTES;
    yield;
  }
  if (titles === undefined || pidColumn === -1) throw invalid("Couldn't find PID field in ps output");
  return { titles, rows };
}

/** Splits a row into columns; what is left over belongs to the last one. */
function splitRow(line: string, columns: number): string[] {
  const words: string[] = [];
  const word = /\S+/g;
  while (words.length < columns) {
    const start = word.lastIndex;
    const found = word.exec(line);
    if (found === null) break;
    words.push(words.length === columns - 1 ? line.slice(start).trim().replaceAll(/\s+/g, ' ') : found[0]);
  }
  return words;
}
