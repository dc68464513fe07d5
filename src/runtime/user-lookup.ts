/** Turns `USER[:GROUP]` into numbers, by the container's own passwd and group files. */
import { invalid } from '../errors/engine-error.js';
import { type GroupEntry, parseGroup, parseId, parsePasswd, type PasswdEntry } from '../sys/users/accounts.js';
import type { OciUser } from './oci-types.js';
import { readRootfsFile } from './rootfs-file.js';

const MAX_ID = 2 ** 31 - 1;

/**
 * Resolves a user of the container whose root filesystem is `rootfs`. `user` is `''` (root), a name or number, with
 * or without `:group`; `groupAdd` names or numbers further groups. A number that the files do not know is taken as it
 * is.
 * @throws EngineError invalid `unable to find user X: no matching entries in passwd file`.
 */
export async function lookUpUser(rootfs: string, user: string, groupAdd: readonly string[]): Promise<OciUser> {
  const [userPart, groupPart] = splitOnce(user);
  const [passwd, group] = await Promise.all([
    readRootfsFile(rootfs, '/etc/passwd'),
    readRootfsFile(rootfs, '/etc/group'),
  ]);
  return resolveUser({
    userPart,
    groupPart,
    groupAdd,
    passwd: parsePasswd(passwd ?? ''),
    groups: parseGroup(group ?? ''),
  });
}

interface Query {
  readonly userPart: string;
  readonly groupPart: string | undefined;
  readonly groupAdd: readonly string[];
  readonly passwd: readonly PasswdEntry[];
  readonly groups: readonly GroupEntry[];
}

function resolveUser({ userPart, groupPart, groupAdd, passwd, groups }: Query): OciUser {
  const { uid, primary, name } = findUser(userPart, passwd);
  const gid = groupPart === undefined || groupPart === '' ? primary : findGroup(groupPart, groups);
  // Memberships count only when the client did not choose the group.
  const member = groupPart
    ? []
    : groups.filter(({ members }) => name !== '' && members.includes(name)).map((group) => group.gid);
  const additionalGids = [...new Set([gid, ...member, ...groupAdd.map((group) => findGroup(group, groups))])];
  return { uid, gid, additionalGids };
}

function findUser(user: string, passwd: readonly PasswdEntry[]): { uid: number; primary: number; name: string } {
  const number = user === '' ? 0 : numberIn(user);
  const entry = passwd.find(({ name, uid }) =>
    user === '' ? uid === 0 : name === user || (number !== undefined && uid === number),
  );
  if (entry) return { uid: entry.uid, primary: entry.gid, name: entry.name };
  if (number === undefined)
    throw invalid(`unable to find user ${user}: no matching entries in passwd file`, { code: 'USER_NOT_FOUND' });
  return { uid: number, primary: 0, name: '' };
}

function findGroup(group: string, groups: readonly GroupEntry[]): number {
  const number = numberIn(group);
  const entry = groups.find(({ name, gid }) => name === group || (number !== undefined && gid === number));
  if (entry) return entry.gid;
  if (number === undefined)
    throw invalid(`unable to find group ${group}: no matching entries in group file`, { code: 'GROUP_NOT_FOUND' });
  return number;
}

/** Returns the number that a text is; undefined for a name. @throws EngineError invalid for one out of range. */
function numberIn(text: string): number | undefined {
  const number = parseId(text);
  if (number !== undefined && (number < 0 || number > MAX_ID))
    throw invalid(`uids and gids must be in range 0-${MAX_ID}`);
  return number;
}

function splitOnce(text: string): [string, string | undefined] {
  const at = text.indexOf(':');
  return at === -1 ? [text, undefined] : [text.slice(0, at), text.slice(at + 1)];
}
