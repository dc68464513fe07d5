/** Makes the planned mounts of a new container real: volumes, and what the image has in their place. */
import { closeSync, constants, fstatSync, opendirSync, openSync } from 'node:fs';
import { chown, rmdir, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { invalid, isEngineError, messageOf } from '../../../errors/engine-error.js';
import type { MountPoint } from '../../../ports/container.js';
import type { Owner } from '../../../ports/id-maps.js';
import { PLUGIN_REFUSED } from '../../../ports/plugin.js';
import { closeFd } from '../../../sys/files/fd.js';
import { detachMount } from '../../../sys/mount/mount.js';
import { O_PATH, openInRoot } from '../../../sys/files/open-in-root.js';
import type { ContainerRecord } from '../container.record.js';
import type { ContainerDeps } from '../deps.js';
import type { Undo } from '../life/undo.js';
import { makeDirectories } from '../../../sys/files/make-directories.js';

/** Keeps volumes from being removed until everybody sees that a container has them. */
export interface VolumePins {
  add(name: string): void;
  release(): void;
}

export function pinVolumes({ volumes }: Pick<ContainerDeps, 'volumes'>): VolumePins {
  const names: string[] = [];
  return {
    add: (name) => void names.push(name),
    // The record is published in the turn that ends the creation, so the volumes stay pinned until the next one.
    release: () => void (names.length > 0 && setImmediate(() => names.forEach((name) => volumes.unpin(name)))),
  };
}

/** A volume that gets the image's files of its place, if it is empty. */
interface CopyUp {
  readonly name: string;
  readonly mountpoint: string;
  readonly destination: string;
  /** The part of the volume that is mounted; '' for all of it. */
  readonly subpath: string;
  /** The content does not exist before the volume is mounted. */
  readonly needsMount: boolean;
}

/** Returns the record with every source filled in. Throws invalid for a bind source that must exist and does not. */
export async function realizeMounts(
  deps: ContainerDeps,
  record: ContainerRecord,
  undo: Undo,
  pins: VolumePins,
): Promise<ContainerRecord> {
  if (record.mounts.length === 0) return record;
  const mounts: MountPoint[] = [];
  const copies: CopyUp[] = [];
  for (const point of record.mounts) {
    if (point.Type === 'bind') await checkBindSource(point);
    if (point.Type !== 'volume' || point.Name === undefined) {
      mounts.push(point);
      continue;
    }
    // A volume that came from another container is not filled here.
    const isOwn = point.Source === '';
    const request = isOwn ? point.Spec?.VolumeOptions : undefined;
    const name = point.Name;
    const anonymous = /^[0-9a-f]{64}$/.test(name);
    const volume = await deps.volumes.ensure({
      name,
      anonymous,
      pinned: true,
      driver: point.Driver ?? '',
      ...(request?.DriverConfig?.Options ? { options: request.DriverConfig.Options } : {}),
      ...(request?.Labels ? { labels: request.Labels } : {}),
    });
    pins.add(name);
    if (volume.created) {
      deps.emit('volume', 'create', name, { driver: volume.driver });
      if (anonymous) {
        undo.add('anonymous volume', async () => {
          deps.volumes.unpin(name);
          await deps.volumes.remove(name);
        });
      }
    }
    if (isOwn && !request?.NoCopy && !point.Mode.split(',').includes('nocopy')) {
      copies.push({
        name,
        mountpoint: volume.mountpoint,
        destination: point.Destination,
        subpath: request?.Subpath ?? '',
        needsMount: volume.options !== null || volume.driver !== 'local',
      });
    }
    mounts.push({ ...point, Driver: volume.driver, Source: volume.mountpoint });
  }
  await copyUp(deps, record, copies);
  return { ...record, mounts };
}

async function copyUp(deps: ContainerDeps, record: ContainerRecord, copies: readonly CopyUp[]): Promise<void> {
  const wanted: CopyUp[] = [];
  for (const copy of copies) if (copy.needsMount || isFillable(copy.mountpoint, copy.subpath)) wanted.push(copy);
  if (wanted.length === 0) return;
  const rootfs = await deps.layers.mount(record.id);
  const plain = await plainImage(deps, record);
  try {
    for (const copy of wanted) {
      const { mountpoint, destination, needsMount } = copy;
      const found = typeOf(rootfs, destination);
      if (found === 'other')
        throw invalid(`cannot mount volume over existing file, file exists ${destination}`, {
          code: 'VOLUME_OVER_FILE',
        });
      const own = { rootfs: plain?.rootfs ?? rootfs, destination };
      if (!needsMount) await deps.volumes.populate({ root: mountpoint, path: '' }, copy.subpath, own);
      else if (found === 'directory')
        await populateMounted(deps, copy, (isOwn) => (isOwn ? own : { rootfs, destination }), record.id);
    }
  } finally {
    await plain?.close();
    await deps.layers.unmount(record.id);
  }
}

/**
 * For a container with users of its own: shows the files of the image with the owners that it sees, because volumes of
 * the daemon are kept like that.
 */
async function plainImage(
  { layers, placesRoot }: ContainerDeps,
  { id, topLayer }: ContainerRecord,
): Promise<{ readonly rootfs: string; close(): Promise<void> } | undefined> {
  if (!layers.mapsOf(id)) return undefined;
  const rootfs = join(placesRoot, `copy-up-${id}`);
  await makeDirectories(rootfs, { mode: 0o700 });
  if (topLayer !== undefined) await layers.mountImage(topLayer, rootfs);
  const close = async (): Promise<void> => {
    await detachMount(rootfs);
    await rmdir(rootfs);
  };
  return { rootfs, close };
}

async function populateMounted(
  { volumes }: ContainerDeps,
  { name, subpath }: CopyUp,
  sourceFor: (isOwn: boolean) => { readonly rootfs: string; readonly destination: string },
  id: string,
): Promise<void> {
  const user = `copy-up ${id}`;
  const place = await volumes.open(name, user);
  try {
    await volumes.populate(place, subpath, sourceFor(place.isOwn === true));
  } finally {
    await volumes.closeUse(name, user);
  }
}

/**
 * Returns whether that part of a volume is an empty directory. If it does not exist, the start of the container says
 * so.
 */
function isFillable(mountpoint: string, subpath: string): boolean {
  const fd = openDirectory(mountpoint, subpath || '.');
  if (fd === undefined) return false;
  try {
    // One entry says enough: a volume may have millions.
    const directory = opendirSync(`/proc/self/fd/${fd}`, { bufferSize: 1 });
    try {
      return directory.readSync() === null;
    } finally {
      directory.closeSync();
    }
  } finally {
    closeFd(fd);
  }
}

/** Opens a directory of a volume; undefined for anything that is no directory. */
function openDirectory(mountpoint: string, subpath: string): number | undefined {
  const root = openSync(mountpoint, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    return openInRoot(root, subpath, constants.O_RDONLY | constants.O_DIRECTORY);
  } catch (error) {
    if (isEngineError(error) && ['ENOENT', 'ENOTDIR'].includes(error.code ?? '')) return undefined;
    throw error;
  } finally {
    closeSync(root);
  }
}

/** Returns the type of the image's file at a path, if there is one; links lead nowhere outside. */
function typeOf(rootfs: string, path: string): 'directory' | 'other' | undefined {
  const root = openSync(rootfs, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    const found = openInRoot(root, path, O_PATH);
    try {
      return fstatSync(found).isDirectory() ? 'directory' : 'other';
    } finally {
      closeFd(found);
    }
  } catch {
    return undefined;
  } finally {
    closeSync(root);
  }
}

/**
 * A source given by `Binds` is made at each start where it is missing; one given by `Mounts` must exist, unless the
 * client says otherwise.
 */
function isMadeAtStart({ Spec }: MountPoint): boolean {
  return Spec === undefined || Spec.BindOptions?.CreateMountpoint === true;
}

async function checkBindSource(point: MountPoint): Promise<void> {
  if (isMadeAtStart(point)) return;
  await stat(point.Source).catch((error: unknown) => {
    throw invalid(`invalid mount config for type "bind": bind source path does not exist: ${point.Source}`, {
      cause: error,
    });
  });
}

/**
 * Makes the directory of a bind source if it is missing and may be made.
 * @param owner gets what is made.
 * @throws EngineError invalid naming the path.
 */
export async function makeBindSource(point: MountPoint, { uid, gid }: Owner): Promise<void> {
  if (!isMadeAtStart(point)) return;
  try {
    const made = await makeDirectories(point.Source);
    if (made === undefined || (uid === 0 && gid === 0)) return;
    for (let path = point.Source; path.length >= made.length; path = dirname(path)) await chown(path, uid, gid);
  } catch (error) {
    // A file or a socket is there.
    if (
      await stat(point.Source).then(
        () => true,
        () => false,
      )
    )
      return;
    throw invalid(`error while creating mount source path '${point.Source}': ${messageOf(error)}`, { cause: error });
  }
}

/** Returns the names of the volumes that are made for a container and that nobody but the daemon has named. */
export function newVolumes({ mounts, hostConfig: { Binds, Mounts } }: ContainerRecord): string[] {
  const named = JSON.stringify([Binds, Mounts]);
  return namesOf(mounts.filter(({ Source }) => Source === '')).filter((name) => !named.includes(name));
}

/**
 * Removes the volumes that only this container had. One that somebody else uses by now stays. Returns whether all is
 * said about them: another try may do better when a driver did not answer, or the daemon is ending.
 */
export async function removeAnonymousVolumes(deps: ContainerDeps, record: ContainerRecord): Promise<boolean> {
  const names = namesOf(record.mounts).filter((name) => deps.volumes.isAnonymous(name));
  return removeUnused(deps, record.id, names);
}

/** Does the same with those of a container that was not made. A driver may have one that is not known here. */
export function removeNewVolumes(deps: ContainerDeps, draft: ContainerRecord): Promise<boolean> {
  return removeUnused(deps, draft.id, newVolumes(draft));
}

function namesOf(mounts: readonly MountPoint[]): string[] {
  return [...new Set(mounts.flatMap(({ Type, Name }) => (Type === 'volume' && Name ? [Name] : [])))];
}

/** A driver that hangs keeps only its own volumes. */
async function removeUnused(deps: ContainerDeps, id: string, names: readonly string[]): Promise<boolean> {
  const remove = async (name: string): Promise<boolean> => {
    if (deps.volumeUsers(name).some((user) => user !== id)) return true;
    try {
      await deps.volumes.remove(name);
      return true;
    } catch (error) {
      deps.log.debug({ err: error, volume: name }, 'anonymous volume kept');
      // Other errors are no answers.
      return isEngineError(error, 'conflict') || isEngineError(error, 'not-found') || isRefusal(error);
    }
  };
  const outcomes = await Promise.all(names.map(remove));
  return outcomes.every((isFinal) => isFinal);
}

/** Returns whether the driver has answered that it does not remove the volume. */
function isRefusal(error: unknown): boolean {
  const { cause } = error as Error;
  return isEngineError(cause) && cause.code === PLUGIN_REFUSED;
}
