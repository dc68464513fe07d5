/**
 * Turns `USER[:GROUP]` into numbers, by the container's own passwd and group files. An image may have made these as
 * large as it likes, so they are read in parts, which hold nothing else up and never become objects all at once.
 */
import { invalid } from '../errors/engine-error.js';
import { type GroupEntry, hasMember, parseGroup, parseId, parsePasswd } from '../sys/users/accounts.js';
import { inTurns, type Parts, whole } from '../text/turns.js';
import type { OciUser } from './oci-types.js';
import { readRootfsFile } from './rootfs-file.js';

const MAX_ID = 2 ** 31 - 1;
/** Files up to this size take no time, and need not wait for a turn. */
const SMALL_BYTES = 16 * 1024;
const PART_BYTES = 8 * 1024;
/** A part ends with a line. */
const MAX_LINE_BYTES = 1024 * 1024;
/** The kernel takes so many groups (NGROUPS_MAX). */
const MAX_GROUPS = 65_536;
const NEWLINE = 0x0a;

/**
 * Resolves a user of the container whose root filesystem is `rootfs`. `user` is `''` (root), a name or number, with
 * or without `:group`; `groupAdd` names or numbers further groups. A number that the files do not know is taken as it
 * is.
 * @throws EngineError invalid `unable to find user X: no matching entries in passwd file`.
 */
export async function lookUpUser(rootfs: string, user: string, groupAdd: readonly string[]): Promise<OciUser> {
  const [userPart, groupPart] = splitOnce(user);
  const [passwd = Buffer.alloc(0), groups = Buffer.alloc(0)] = await Promise.all([
    readRootfsFile(rootfs, '/etc/passwd'),
    readRootfsFile(rootfs, '/etc/group'),
  ]);
  const work = resolveUser({ userPart, groupPart, groupAdd, passwd, groups });
  return passwd.length + groups.length <= SMALL_BYTES ? whole(work) : inTurns(work);
}

interface Query {
  readonly userPart: string;
  readonly groupPart: string | undefined;
  readonly groupAdd: readonly string[];
  readonly passwd: Buffer;
  readonly groups: Buffer;
}

function* resolveUser({ userPart, groupPart, groupAdd, passwd, groups }: Query): Parts<OciUser> {
  const { uid, primary, name } = yield* findUser(userPart, passwd);
  const wanted = new WantedGroups(groupPart ? [groupPart, ...groupAdd] : groupAdd);
  const member = new Set<number>();
  for (const part of partsOf(groups)) {
    for (const group of parseGroup(part)) {
      wanted.see(group);
      // Memberships count only when the client did not choose the group.
      if (!groupPart && hasMember(group, name)) member.add(group.gid);
    }
    yield;
  }
  const gid = groupPart ? wanted.gidOf(groupPart) : primary;
  const additionalGids = [...new Set([gid, ...member, ...groupAdd.map((group) => wanted.gidOf(group))])];
  if (additionalGids.length > MAX_GROUPS) throw invalid(`a process has ${MAX_GROUPS} groups at most`);
  return { uid, gid, additionalGids };
}

function* findUser(user: string, passwd: Buffer): Parts<{ uid: number; primary: number; name: string }> {
  const number = user === '' ? 0 : numberIn(user);
  for (const part of partsOf(passwd)) {
    const entry = parsePasswd(part).find(({ name, uid }) =>
      user === '' ? uid === 0 : name === user || (number !== undefined && uid === number),
    );
    if (entry) return { uid: entry.uid, primary: entry.gid, name: entry.name };
    yield;
  }
  if (number === undefined)
    throw invalid(`unable to find user ${user}: no matching entries in passwd file`, { code: 'USER_NOT_FOUND' });
  return { uid: number, primary: 0, name: '' };
}

/** Groups that are looked for in one pass, however many they are. */
class WantedGroups {
  readonly #names: ReadonlySet<string>;
  /** The texts that are the same number, such as `7` and `07`. */
  readonly #numbers = new Map<number, string[]>();
  readonly #found = new Map<string, number>();

  /** @throws EngineError invalid for a number out of range. */
  constructor(groups: readonly string[]) {
    this.#names = new Set(groups);
    for (const group of this.#names) {
      const number = numberIn(group);
      if (number === undefined) continue;
      const same = this.#numbers.get(number);
      if (same) same.push(group);
      else this.#numbers.set(number, [group]);
    }
  }

  /** Notes the next entry of the file. The first that has the name or the number counts. */
  see({ name, gid }: GroupEntry): void {
    if (this.#names.has(name) && !this.#found.has(name)) this.#found.set(name, gid);
    for (const text of this.#numbers.get(gid) ?? []) if (!this.#found.has(text)) this.#found.set(text, gid);
    this.#numbers.delete(gid);
  }

  /** @throws EngineError invalid for a name that has not been seen. */
  gidOf(group: string): number {
    const gid = this.#found.get(group) ?? numberIn(group);
    if (gid === undefined)
      throw invalid(`unable to find group ${group}: no matching entries in group file`, { code: 'GROUP_NOT_FOUND' });
    return gid;
  }
}

/** Yields the text in parts of whole lines. @throws EngineError invalid for a line that is too long. */
function* partsOf(file: Buffer): Generator<string> {
  for (let at = 0; at < file.length;) {
    const newline = at + PART_BYTES < file.length ? file.indexOf(NEWLINE, at + PART_BYTES) : -1;
    const end = newline === -1 ? file.length : newline + 1;
    if (end - at > PART_BYTES + MAX_LINE_BYTES) throw invalid('a line of the passwd or group file is too long');
    yield file.toString('utf8', at, end);
    at = end;
  }
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
