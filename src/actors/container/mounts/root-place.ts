/**
 * Where the runtime finds the root file system of a container with users of its own. It looks for it as the root of
 * these users, who may pass through no directory of the data root: that stays closed, as there are files of other
 * containers. So it is shown in the exec-root until the runtime has made its own mount.
 */
import { chmod, chown, mkdir, readdir, rmdir } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { detachMount, mountFileSystem } from '../../../sys/mount/mount.js';
import { makeDirectories } from '../../../sys/files/make-directories.js';
import { checkPassage } from '../../../sys/users/id-access.js';
import { rootOwner } from '../../../sys/users/id-maps.js';
import type { ContainerDeps } from '../deps.js';
import type { Undo } from '../life/undo.js';

type Deps = Pick<ContainerDeps, 'layers' | 'rootsRoot'>;

// linux/mount.h
const MS_BIND = 4096;

/**
 * Returns the path for the runtime: `rootfs` itself for a container without users of its own.
 * @throws EngineError invalid when a directory above the exec-root keeps these users out.
 */
export async function showRoot(deps: Deps, id: string, rootfs: string, undo: Undo): Promise<string> {
  const { layers, rootsRoot } = deps;
  const maps = layers.mapsOf(id);
  if (!maps) return rootfs;
  const owner = rootOwner(maps);
  const [dir, place] = [join(rootsRoot, id), placeOf(rootsRoot, id)];
  undo.add('root file system for the runtime', () => removePlace(rootsRoot, id));
  // It may be there from the run before.
  await removePlace(rootsRoot, id);
  await makeDirectories(rootsRoot, { mode: 0o711 });
  await makeDirectories(dir, { mode: 0o710 });
  await chown(dir, 0, owner.gid);
  await chmod(dir, 0o710);
  await checkPassage(place, owner, 'exec-root');
  await mkdir(place, { mode: 0o700 });
  await mountFileSystem(rootfs, place, '', '', MS_BIND);
  return place;
}

/**
 * Takes the files away when the runtime has made its own mount. The empty directory stays: runc starts in it what is
 * executed in the container later.
 */
export async function hideRoot({ layers, rootsRoot }: Deps, id: string): Promise<void> {
  if (layers.mapsOf(id)) await detachMount(placeOf(rootsRoot, id));
}

/** Removes the directory of a container that has ended, and still has its writable layer. Idempotent. */
export async function removeRoot({ layers, rootsRoot }: Deps, id: string): Promise<void> {
  if (layers.mapsOf(id)) await removePlace(rootsRoot, id);
}

async function removePlace(rootsRoot: string, id: string): Promise<void> {
  const place = placeOf(rootsRoot, id);
  await detachMount(place);
  // Not recursively: where something is still mounted are the container's files.
  for (const directory of [place, dirname(place)])
    await rmdir(directory).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOENT') throw error;
    });
}

/** Takes away what a killed daemon left, but for the directories of containers that may run. */
export async function clearRoots({ layers, rootsRoot }: Deps): Promise<void> {
  const ids = await readdir(rootsRoot).catch(() => []);
  for (const id of ids) await (layers.mapsOf(id) ? hideRoot({ layers, rootsRoot }, id) : removePlace(rootsRoot, id));
}

const placeOf = (rootsRoot: string, id: string): string => join(rootsRoot, id, 'rootfs');
