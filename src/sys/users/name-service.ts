/** Entries of the host's users and groups from wherever they are kept: files, LDAP, SSSD (nsswitch.conf(5)). */
import { spawnSync } from 'node:child_process';
import { runProgram } from '../process/spawn.js';

/** A directory service on the network may be out of reach, so the question has a time limit. */
const TIMEOUT_S = 10;

type Database = 'passwd' | 'group';

/**
 * Returns the lines of a database for a name or number, as in its file; '' when there is none. Synchronous, for the
 * start.
 */
export function nameServiceEntry(database: Database, key: string): string {
  const options = { encoding: 'utf8', timeout: TIMEOUT_S * 1000 } as const;
  const { status, stdout } = spawnSync('getent', ['--', database, key], options);
  return status === 0 ? stdout : '';
}

/** Does the same in the background, for a running daemon. @throws EngineError when no program can be started. */
export async function askNameService(database: Database, key: string): Promise<string> {
  const { exitCode, stdout } = await runProgram('timeout', [String(TIMEOUT_S), 'getent', '--', database, key]);
  return exitCode === 0 ? stdout : '';
}
