/**
 * Finds the user whose subordinate ids the users of containers get: from the option `userns-remap` and the files of
 * subuid(5) and subgid(5). Synchronous, for the start.
 */
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { type EngineError, invalid, isEngineError, messageOf } from '../../errors/engine-error.js';
import type { IdMaps, IdRange } from '../../ports/id-maps.js';
import { type GroupEntry, parseGroup, parseId, parsePasswd, type PasswdEntry } from './accounts.js';
import { nameServiceEntry } from './name-service.js';
import { isRange, overlap, parseRanges, type SubordinateRange } from './subordinate-ranges.js';

/** With this value each container has users of its own, if it does not say otherwise (own-users.ts). */
export const OWN_USERS = 'auto';
/** The user that `default` stands for. */
const DEFAULT_USER = 'engineremap';

const NO_DEFAULT_USER = 'NO_DEFAULT_USER';
/** Where ranges for the default user begin, and how many ids it gets: as useradd(8) has it for people. */
const FIRST_ID = 100_000;
const ID_COUNT = 65_536;

/** One of the two files, and whose ranges there are meant. */
interface OwnerKind {
  readonly file: string;
  /** In the order in which they are looked for. */
  readonly accounts: readonly Account[];
  /** For messages. */
  readonly owner: string;
  /** The option of usermod(8) that adds a range, and the user that it is for. */
  readonly option: string;
  readonly user: string;
}

interface Account {
  readonly id: number;
  readonly name: string;
}

/**
 * Returns the maps for `default`, `USER`, `UID`, `USER:GROUP` or `UID:GID`; undefined for root, who needs no maps, and
 * for `auto`, with which containers have different ones.
 * @throws EngineError invalid that names what is missing, and lines with too few ids or with the same ones twice.
 */
export function readIdMaps(value: string): IdMaps | undefined {
  const owners = findOwners(value);
  return owners && { uids: idRanges(value, owners.users), gids: idRanges(value, owners.groups) };
}

/** Returns a sentence for each range of somebody else that holds ids of these maps. No error, as dockerd takes them. */
export function sharedRanges(value: string): string[] {
  const owners = findOwners(value);
  return Object.values(owners ?? {}).flatMap((kind) => {
    const { own, others } = readOwned(kind);
    return own.flatMap((range) =>
      others
        .filter((other) => overlap(range, other))
        .map(
          ({ line, owner }) =>
            `${kind.file}: ${range.line} and ${line} hold the same ids: ${owner} can reach files of containers`,
        ),
    );
  });
}

function findOwners(value: string): { users: OwnerKind; groups: OwnerKind } | undefined {
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
  const [userOwner, groupOwner] = [`user ${user.name}`, `group ${group.name}`];
  return {
    users: { file: '/etc/subuid', accounts: [user], owner: userOwner, option: '--add-subuids', user: user.name },
    groups: {
      file: '/etc/subgid',
      accounts: [group, user],
      owner: groupOwner,
      option: '--add-subgids',
      user: user.name,
    },
  };
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
    const first = Math.max(FIRST_ID, ...parseRanges(read(file)).map(({ end }) => end));
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

/** The ranges that the remapped users get: those of the first account that has any, by its number, else by its name. */
function readOwned({ file, accounts }: OwnerKind): { own: SubordinateRange[]; others: SubordinateRange[] } {
  const lines = parseRanges(read(file));
  const keys = accounts.flatMap(({ id, name }) => [String(id), name]);
  const key = keys.find((one) => lines.some(({ owner }) => owner === one));
  return {
    own: lines.filter(({ owner }) => owner === key),
    others: lines.filter(({ owner }) => !keys.includes(owner)),
  };
}

/** Returns the ranges in the order of the file: they are the ids of containers from 0 on. */
function idRanges(value: string, kind: OwnerKind): IdRange[] {
  const { file, owner, option, user } = kind;
  const { own } = readOwned(kind);
  const remedy = `add one with: usermod ${option} FIRST-LAST ${user}`;
  if (own.length === 0) throw refused(value, `no range of ${owner} in ${file}; ${remedy}`);
  let containerId = 0;
  const ranges = own.map((range, index): IdRange => {
    if (!isRange(range)) throw invalid(`${file}: ${range.line} is no range of ids`);
    const other = own.slice(0, index).find((earlier) => overlap(earlier, range));
    if (other) throw refused(value, `${file}: ${other.line} and ${range.line} hold the same ids; remove one of them`);
    const count = range.end - range.first;
    containerId += count;
    return { containerId: containerId - count, hostId: range.first, count };
  });
  if (containerId < ID_COUNT)
    throw refused(
      value,
      `the ranges of ${owner} in ${file} hold ${containerId} ids (${own.map(({ line }) => line).join(', ')}), and ` +
        `containers need ${ID_COUNT}; ${remedy}`,
    );
  return ranges;
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
