/** Asks runtimes for their features (OCI runtime specification, features.md). */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';

const LIMIT_MS = 5000;
const known = new Map<string, Promise<string | undefined>>();

/** Returns the features as JSON; undefined if the program does not know the command. Each program is asked once. */
export function runtimeFeatures(path: string): Promise<string | undefined> {
  const found = known.get(path) ?? ask(path);
  known.set(path, found);
  return found;
}

async function ask(path: string): Promise<string | undefined> {
  try {
    const { stdout } = await promisify(execFile)(path, ['features'], { timeout: LIMIT_MS });
    return JSON.stringify(JSON.parse(stdout));
  } catch {
    // Older runtimes do not have this command.
    return undefined;
  }
}
