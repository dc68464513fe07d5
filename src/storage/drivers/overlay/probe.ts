/** Finds out whether overlayfs works on the data root's file system, and with which options. */
import { access, rm, writeFile } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { messageOf, unavailable } from '../../../errors/engine-error.js';
import { fileSystemOf } from '../../../sys/mount/file-system-of.js';
import { detachMount, mountFileSystem, mountPointsBelow } from '../../../sys/mount/mount.js';
import { tellsTypes } from '../../../sys/files/directory-types.js';
import { isInUserNamespace } from '../../../sys/users/user-namespace.js';
import { makeDirectories } from '../../../sys/files/make-directories.js';
import type { Layout } from '../../layers/layout.js';

/**
 * The index and copied-up metadata would tie a layer to its inode numbers, redirects would make renamed directories
 * invisible in a difference: layers are copied and read without overlayfs, so all three must be off.
 */
const PARAMETERS = ['index', 'metacopy', 'redirect_dir'];

/**
 * A mount with this option neither passes on syncs of files nor syncs the whole file system below when it ends. Linux
 * knows it since 5.10.
 */
const VOLATILE = ',volatile';

/**
 * In a user namespace, the marks of layers are attributes `user.overlay.*`, which root may set there. Linux knows this
 * option since 5.11; a kernel that mounts without it cannot replace directories of layers. It switches the other two
 * parameters off, and does not let them be named.
 */
const USER_OPTIONS = ',userxattr,index=off';

/** The name of the directory where mounts are tried. */
const TRIED = 'merged';

/** Options of mounts, each with a comma before it. */
export interface MountOptions {
  readonly always: string;
  /** Besides these, those of a mount whose files nobody needs after an end of the machine. */
  readonly brief: string;
}

/**
 * Mounts a small overlay in `directory` (empty, the caller deletes it) and returns the options that mounts need.
 * @throws EngineError unavailable with the reason.
 */
async function probeOverlay(directory: string): Promise<MountOptions> {
  const at = (name: string): string => join(directory, name);
  for (const name of ['lower', 'upper', 'work', TRIED]) await makeDirectories(at(name));
  await writeFile(at('lower/file'), '');
  if (!tellsTypes(directory)) {
    const type = fileSystemType(directory);
    throw unavailable(
      `storage driver overlay2: the file system of the data root (${type}) was made without d_type support ` +
        '(xfs: mkfs.xfs -n ftype=1)',
      { code: 'OVERLAY_UNSUPPORTED' },
    );
  }
  const paths = `lowerdir=${at('lower')},upperdir=${at('upper')},workdir=${at('work')}`;
  // The first mount loads the module, whose parameters then show what this kernel knows.
  await tryMount(at(TRIED), paths, directory);
  const options = await knownOptions();
  await tryMount(at(TRIED), paths + options, directory);
  try {
    await tryMount(at(TRIED), paths + options + VOLATILE, directory);
  } catch {
    return { always: options, brief: '' };
  }
  return { always: options, brief: VOLATILE };
}

/**
 * Finds out the options of mounts in the directory of a store.
 * @throws EngineError unavailable when overlays cannot be mounted there; the message says why.
 */
export async function mountOptionsFor(layout: Layout): Promise<MountOptions> {
  await detachTried(layout);
  const directory = layout.newStaging();
  try {
    return await probeOverlay(directory);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOSPC') throw error;
    return await untriedOptions();
  } finally {
    // A handful of empty directories: no reason to start a worker thread.
    await rm(directory, { recursive: true, force: true });
    layout.leaveStaging(directory);
  }
}

/** A daemon that was killed while it tried a mount has left it. The trash could not be emptied while it is there. */
async function detachTried({ staging, trash }: Layout): Promise<void> {
  for (const directory of [staging, trash])
    for (const point of await mountPointsBelow(directory))
      if (basename(point) === TRIED && dirname(dirname(point)) === directory) await detachMount(point);
}

/**
 * Returns the options that mounts need where the disk has no room to try them: a daemon must start there, so that
 * somebody can make room. What worked before the disk was full works again.
 */
async function untriedOptions(): Promise<MountOptions> {
  // This mount fails, as there is no such layer, but loads the module, whose parameters then show what the kernel
  // knows.
  await mountFileSystem('overlay', '/proc', 'overlay', 'lowerdir=/proc/self/no-such-layer').catch(() => undefined);
  return { always: await knownOptions(), brief: '' };
}

async function knownOptions(): Promise<string> {
  if (isInUserNamespace()) return USER_OPTIONS;
  const known = await Promise.all(PARAMETERS.map((name) => exists(`/sys/module/overlay/parameters/${name}`)));
  const off = PARAMETERS.filter((_, i) => known[i]).map((name) => `,${name}=off`);
  return off.join('');
}

async function tryMount(target: string, options: string, directory: string): Promise<void> {
  try {
    await mountFileSystem('overlay', target, 'overlay', options);
  } catch (error) {
    throw unavailable(explain(error, directory), { code: 'OVERLAY_UNSUPPORTED', cause: error });
  }
  await detachMount(target);
}

function explain(error: unknown, directory: string): string {
  const { code } = error as NodeJS.ErrnoException;
  if (code === 'ENODEV') return 'storage driver overlay2: this kernel has no overlay file system';
  if (code === 'EPERM')
    return 'storage driver overlay2: mounting is not permitted (the daemon must run as root with CAP_SYS_ADMIN)';
  const type = fileSystemType(directory);
  return (
    `storage driver overlay2: the file system of the data root (${type}) cannot hold the upper layer of an ` +
    `overlay: ${messageOf(error)}`
  );
}

/** The type of the file system that holds a path. */
export function fileSystemType(path: string): string {
  return fileSystemOf(path).type;
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
