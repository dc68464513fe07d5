/**
 * The version of all that is in the data root, beside which each record has one of its own: a file says which form the
 * state has, and which versions of the program still understand it. A program that does not leaves it untouched.
 *
 * A change that the program before could not live with takes the next number as STATE. If that program reads the new
 * form all the same, since it was taught to a release earlier, READABLE_FROM stays behind by one: then a downgrade by
 * one release is possible.
 */
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid, messageOf } from '../errors/engine-error.js';
import { replaceFile } from '../sys/files/durable-file.js';

/** The form in which this program writes. Data roots without the file are of 1, the first. */
const STATE = 1;
/** The oldest program that reads what this one writes, by its own STATE. */
const READABLE_FROM = 1;

interface StateVersion {
  readonly state: number;
  readonly readableFrom: number;
}

/**
 * Checks that this program understands what is in a data root. It writes nothing.
 * @throws EngineError invalid, with what to do, for the state of a newer program or a file that is damaged.
 */
export async function checkState(dataRoot: string): Promise<void> {
  const found = await readState(dataRoot);
  if (found === undefined || found.readableFrom <= STATE) return;
  throw invalid(
    `the state in ${dataRoot} is of a newer engined: it has version ${found.state}, which a program of version ` +
      `${found.readableFrom} or later reads, and this one is of version ${STATE}. Nothing was changed. ` +
      'Install that engined again, or give this one a --data-root of its own',
    { code: 'STATE_VERSION' },
  );
}

/** Notes that this program writes into a data root. What a newer program has noted stays. */
export async function noteState(dataRoot: string): Promise<void> {
  const found = await readState(dataRoot);
  if (found !== undefined && found.state >= STATE) return;
  await replaceFile(pathIn(dataRoot), `${JSON.stringify({ state: STATE, readableFrom: READABLE_FROM })}\n`);
}

async function readState(dataRoot: string): Promise<StateVersion | undefined> {
  const path = pathIn(dataRoot);
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return undefined;
    throw error;
  });
  if (text === undefined) return undefined;
  try {
    const { state, readableFrom } = JSON.parse(text) as Partial<Record<keyof StateVersion, unknown>>;
    if (isVersion(state) && isVersion(readableFrom)) return { state, readableFrom };
    throw new Error('it has no versions');
  } catch (cause) {
    throw invalid(
      `${path} cannot be read: ${messageOf(cause)}. It says which engined the state is of: restore it, or ` +
        'delete it when no newer engined has run here',
      { code: 'STATE_VERSION', cause },
    );
  }
}

function isVersion(value: unknown): value is number {
  return Number.isSafeInteger(value) && Number(value) > 0;
}

function pathIn(dataRoot: string): string {
  return join(dataRoot, 'state.json');
}
