/**
 * Finds the user whose subordinate ids the users of containers get: from the option `userns-remap` and the files of
 * subuid(5) and subgid(5). Synchronous, for the start.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { type EngineError, invalid, isEngineError, messageOf } from '../../errors/engine-error.js';
import type { IdMaps, IdRange } from '../../ports/id-maps.js';
import { fields, type GroupEntry, parseGroup, parseId, parsePasswd, type PasswdEntry } from './accounts.js';
import { nameServiceEntry } from './name-service.js';

/** With this value each container has users of its own, if it does not say otherwise (own-users.ts). */
export const OWN_USERS = 'auto';
/** The user that `default` stands for. */
const DEFAULT_USER = 'engineremap';

const NO_DEFAULT_USER = 'NO_DEFAULT_USER';
/** Where ranges for the default user begin, and how many ids it gets: as useradd(8) has it for people. */
const FIRST_ID = 100_000;
const ID_COUNT = 65_536;
const MAX_ID = 2 ** 32 - 2;

interface Account {
  readonly id: number;
  readonly name: string;
}

/**
 * Returns the maps for `default`, `USER`, `UID`, `USER:GROUP` or `UID:GID`; undefined for root, who needs no maps, and
 * for `auto`, with which containers have different ones.
 * @throws EngineError invalid that names what is missing.
 */
export function readIdMaps(value: string): IdMaps | undefined {
  if (value === OWN_USERS) return undefined;
  const [userPart = '', groupPart, ...rest] = value.split(':');
  if (userPart === '' || groupPart === '' || rest.length > 0)
    throw refused(value, 'it must be auto, default, USER, UID, USER:GROUP or UID:GID');
  if (value === 'default' && !findUser(DEFAULT_USER))
    throw invalid(`userns-remap default: there is no user ${DEFAULT_USER}`, { code: NO_DEFAULT_USER });
  const named = (part: string): string => (part === 'default' ? DEFAULT_USER : part);
  const user = findUser(named(userPart));
  if (!user) throw refused(value, `there is no user ${userPart} in /etc/passwd`);
  const group = findGroup(groupPart === undefined ? user.name : named(groupPart));
  if (!group) throw refused(value, `there is no group ${groupPart ?? user.name} in /etc/group`);
  if (user.id === 0) return undefined;
  const [uids, gids] = [readRanges('/etc/subuid', [user]), readRanges('/etc/subgid', [group, user])];
  if (uids.length === 0)
    throw refused(
      value,
      `no range of user ${user.name} in /etc/subuid; add one with: usermod --add-subuids FIRST-LAST ${user.name}`,
    );
  if (gids.length === 0)
    throw refused(
      value,
      `no range of group ${group.name} in /etc/subgid; add one with: usermod --add-subgids FIRST-LAST ${user.name}`,
    );
  return { uids, gids };
}

/** As `readIdMaps`; makes the user that `default` stands for, with ranges that nobody has, when it is not there. */
export function openIdMaps(value: string): IdMaps | undefined {
  try {
    return readIdMaps(value);
  } catch (error) {
    if (!isDefaultUserMissing(error)) throw error;
  }
  makeDefaultUser();
  return readIdMaps(value);
}

/** True when all that is missing is the user that the start makes. */
export function isDefaultUserMissing(error: unknown): boolean {
  return isEngineError(error) && error.code === NO_DEFAULT_USER;
}

function makeDefaultUser(): void {
  const range = (file: string): string => {
    const first = Math.max(
      FIRST_ID,
      ...fields(read(file)).map(([, start = '', count = '']) => (parseId(start) ?? 0) + (parseId(count) ?? 0)),
    );
    return `${first}-${first + ID_COUNT - 1}`;
  };
  run('useradd', [
    '--system',
    '--user-group',
    '--no-create-home',
    '--home-dir',
    '/nonexistent',
    '--shell',
    '/usr/sbin/nologin',
    DEFAULT_USER,
  ]);
  run('usermod', ['--add-subuids', range('/etc/subuid'), '--add-subgids', range('/etc/subgid'), DEFAULT_USER]);
}

function run(program: string, args: readonly string[]): void {
  const { status, error, stderr } = spawnSync(program, args, { encoding: 'utf8' });
  if (status !== 0)
    throw refused(
      'default',
      `making the user ${DEFAULT_USER}: ${program} failed: ${error ? messageOf(error) : stderr.trim()}; ` +
        'make the user and its ranges in /etc/subuid and /etc/subgid by hand',
    );
}

function findUser(nameOrId: string): Account | undefined {
  const find = (text: string): PasswdEntry | undefined =>
    parsePasswd(text).find(({ name, uid }) => name === nameOrId || uid === parseId(nameOrId));
  const found = find(read('/etc/passwd')) ?? find(nameServiceEntry('passwd', nameOrId));
  return found && { id: found.uid, name: found.name };
}

function findGroup(nameOrId: string): Account | undefined {
  const find = (text: string): GroupEntry | undefined =>
    parseGroup(text).find(({ name, gid }) => name === nameOrId || gid === parseId(nameOrId));
  const found = find(read('/etc/group')) ?? find(nameServiceEntry('group', nameOrId));
  return found && { id: found.gid, name: found.name };
}

/**
 * The ranges of the first account that has any, by its number, else by its name; in the order of the file they are the
 * ids from 0 on.
 */
function readRanges(file: string, accounts: readonly Account[]): IdRange[] {
  const lines = fields(read(file));
  for (const key of accounts.flatMap(({ id, name }) => [String(id), name])) {
    const ranges: IdRange[] = [];
    let containerId = 0;
    for (const [owner, first = '', size = ''] of lines) {
      if (owner !== key) continue;
      const [hostId, count] = [parseId(first), parseId(size)];
      if (hostId === undefined || count === undefined || hostId < 1 || count < 1 || hostId + count - 1 > MAX_ID)
        throw invalid(`${file}: ${owner}:${first}:${size} is no range of ids`);
      ranges.push({ containerId, hostId, count });
      containerId += count;
    }
    if (ranges.length > 0) return ranges;
  }
  return [];
}

/** '' for a file that is not there. */
function read(path: string): string {
  try {
    return readFileSync(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
    throw error;
  }
}

function refused(value: string, reason: string): EngineError {
  return invalid(`userns-remap ${value}: ${reason}`, { code: 'USERNS_REMAP' });
}
