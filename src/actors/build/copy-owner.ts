/** The owner that `--chown` and USER name for files that are made. */
import { EngineError, invalid, isEngineError } from '../../errors/engine-error.js';
import type { Owner } from '../../ports/id-maps.js';

type LookUp = (rootfs: string, user: string) => Promise<Owner>;

const NUMBER = /^\d+$/;

/**
 * Returns the owner in the image whose files are at `rootfs`. A number stands for the group, too. BuildKit takes root
 * for a user whom the image does not know, root's group where nothing is written after the colon, and the user's group
 * for an unknown group.
 * @throws EngineError invalid for an unknown name where the builder is the classic one, for which the name of a user is
 * that of the group, too.
 */
export async function copyOwner(rootfs: string, written: string, lookUp: LookUp, isClassic: boolean): Promise<Owner> {
  const at = written.indexOf(':');
  const user = at < 0 ? written : written.slice(0, at);
  const group = at < 0 ? '' : written.slice(at + 1);
  const known = async (name: string, kind: 'user' | 'group', otherwise: Owner): Promise<Owner> => {
    if (name === '' && isClassic) throw unknown(name, kind);
    try {
      return await lookUp(rootfs, kind === 'user' ? name : `0:${name}`);
    } catch (error) {
      if (!isEngineError(error, 'invalid')) throw error;
      if (!isClassic) return otherwise;
      throw unknown(name, kind);
    }
  };
  const owner = NUMBER.test(user)
    ? { uid: numberOf(user), gid: numberOf(user) }
    : await known(user, 'user', { uid: 0, gid: 0 });
  if (at < 0 && !isClassic) return owner;
  const wanted = at < 0 ? user : group;
  if (wanted === '' && !isClassic) return { uid: owner.uid, gid: 0 };
  const { gid } = NUMBER.test(wanted) ? { gid: numberOf(wanted) } : await known(wanted, 'group', owner);
  return { uid: owner.uid, gid };
}

function unknown(name: string, kind: 'user' | 'group'): EngineError {
  const id = kind === 'user' ? 'uid' : 'gid';
  return invalid(
    `unable to convert uid/gid chown string to host mapping: can't find ${id} for ${kind} ${name}: ` +
      `no such ${kind}: ${name}`,
  );
}

const MAX_ID = 2 ** 31 - 1;

function numberOf(text: string): number {
  const id = Number(text);
  // The words are those of BuildKit, which cannot tell which number it was.
  if (id > MAX_ID) throw noUser();
  return id;
}

/** Looks a name up where there are no files at all: root is known everywhere. */
export function userOfNothing(_rootfs: string, user: string): Promise<Owner> {
  return user === 'root' || user === '0:root' ? Promise.resolve({ uid: 0, gid: 0 }) : Promise.reject(noUser());
}

function noUser(): EngineError {
  return new EngineError('internal', 'invalid user index: -1');
}
