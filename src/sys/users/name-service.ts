/** Entries of the host's users and groups from wherever they are kept: files, LDAP, SSSD (nsswitch.conf(5)). */
import { spawnSync } from 'node:child_process';

/** A directory service on the network may be out of reach, so the question has a time limit. */
const TIMEOUT_MS = 10_000;

/**
 * Returns the lines of a database for a name or number, as in its file; '' when there is none. Synchronous, for the
 * start.
 */
export function nameServiceEntry(database: 'passwd' | 'group', key: string): string {
  const { status, stdout } = spawnSync('getent', ['--', database, key], { encoding: 'utf8', timeout: TIMEOUT_MS });
  return status === 0 ? stdout : '';
}
