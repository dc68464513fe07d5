/** The volumes of a container while it runs: mounted if they have to be, announced, and given to the runtime. */
import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { mkdir, realpath, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid, messageOf, notFound } from '../../../errors/engine-error.js';
import type { MountPoint } from '../../../ports/container.js';
import { closeFd } from '../../../sys/files/fd.js';
import { detachMount, mountFileSystem, mountPointsBelow } from '../../../sys/mount/mount.js';
import { rootOwner } from '../../../sys/users/id-maps.js';
import { O_PATH, openInRoot } from '../../../sys/files/open-in-root.js';
import type { ContainerRecord } from '../container.record.js';
import type { ContainerDeps } from '../deps.js';
import { labelSource } from './labels.js';
import { makeBindSource } from './mounts.js';
import { makeDirectories } from '../../../sys/files/make-directories.js';

export class VolumeUse {
  readonly #deps: Pick<ContainerDeps, 'volumes' | 'layers' | 'emit' | 'placesRoot' | 'idMaps' | 'relabel'>;
  readonly #record: ContainerRecord;
  /** This directory has a mount for each subpath until the runtime has made its own mount. */
  readonly #placesDir: string;
  #places = 0;
  /** The container's mounts with the sources that its volumes have while they are open. */
  points: readonly MountPoint[];

  constructor(
    deps: Pick<ContainerDeps, 'volumes' | 'layers' | 'emit' | 'placesRoot' | 'idMaps' | 'relabel'>,
    record: ContainerRecord,
  ) {
    this.#deps = deps;
    this.#record = record;
    this.points = record.mounts;
    this.#placesDir = join(deps.placesRoot, record.id);
  }

  /**
   * Opens all volumes; returns the container's mounts as the runtime takes them. Throws not-found for a subpath that is
   * not there, and invalid for a host directory that cannot be made.
   */
  async open(): Promise<MountPoint[]> {
    const mounts: MountPoint[] = [];
    const points: MountPoint[] = [];
    for (const point of this.#record.mounts) {
      if (point.Type !== 'volume' || point.Name === undefined) {
        if (point.Type === 'bind') {
          await makeBindSource(point, rootOwner(this.#deps.idMaps));
          await labelSource(this.#deps, this.#record, point);
        }
        mounts.push(point.Type === 'image' ? { ...point, Source: await this.#placeImage(point) } : point);
        points.push(point);
        continue;
      }
      const mountpoint = await this.#deps.volumes.open(point.Name, this.#record.id);
      points.push({ ...point, Source: mountpoint });
      // Only the daemon's own volumes: a plugin keeps the files of others as it likes.
      if ((point.Driver ?? 'local') === 'local')
        await labelSource(this.#deps, this.#record, { ...point, Source: mountpoint });
      this.#deps.emit('volume', 'mount', point.Name, {
        container: this.#record.id,
        destination: point.Destination,
        driver: point.Driver ?? 'local',
        propagation: point.Propagation,
        'read/write': String(point.RW),
      });
      mounts.push({ ...point, Source: await this.#place(mountpoint, point.Spec?.VolumeOptions?.Subpath) });
    }
    this.points = points;
    return mounts;
  }

  /** Takes over the volumes of a container that runs already. */
  async adopt(): Promise<void> {
    for (const name of this.#names()) await this.#deps.volumes.adopt(name, this.#record.id);
  }

  /** Ends the use of all volumes, also after a start that failed. */
  async close(): Promise<void> {
    await this.freePlaces();
    for (const point of this.#record.mounts) {
      if (point.Type === 'volume' && point.Name !== undefined)
        this.#deps.emit('volume', 'unmount', point.Name, {
          container: this.#record.id,
          driver: point.Driver ?? 'local',
        });
    }
    const results = await Promise.allSettled(
      [...this.#names()].map((name) => this.#deps.volumes.closeUse(name, this.#record.id)),
    );
    for (const result of results) if (result.status === 'rejected') throw result.reason;
  }

  /** Unmounts the places. It must be called when the runtime has made the mounts, or has failed. Idempotent. */
  async freePlaces(): Promise<void> {
    if (this.#places === 0) return;
    for (; this.#places > 0; this.#places--) await detachMount(join(this.#placesDir, String(this.#places)));
    await rm(this.#placesDir, { recursive: true });
  }

  /**
   * Returns the place to mount. A place inside the volume, where containers may put links, is pinned by a mount of its
   * own.
   */
  async #place(mountpoint: string, subpath: string | undefined): Promise<string> {
    if (!subpath) return mountpoint;
    const fd = openSubpath(mountpoint, subpath);
    try {
      const place = await this.#newPlace(fstatSync(fd).isDirectory());
      await mountFileSystem(`/proc/self/fd/${fd}`, place, '', '', MS_BIND | MS_REC);
      return place;
    } finally {
      closeFd(fd);
    }
  }

  /**
   * Mounts the files of an image and returns the place for the runtime. The mount that the container gets keeps the
   * files.
   */
  async #placeImage({ TopLayer, Spec }: MountPoint): Promise<string> {
    const place = await this.#newPlace(true);
    // An image without layers has no files.
    const label = this.#deps.relabel && this.#record.labels?.mountLabel;
    if (TopLayer !== undefined) await this.#deps.layers.mountImage(TopLayer, place, label);
    return this.#place(place, Spec?.ImageOptions?.Subpath);
  }

  async #newPlace(isDirectory: boolean): Promise<string> {
    await makeDirectories(this.#placesDir, { mode: 0o700 });
    const place = join(this.#placesDir, String(++this.#places));
    await (isDirectory ? mkdir(place) : writeFile(place, ''));
    return place;
  }

  #names(): Set<string> {
    return new Set(
      this.#record.mounts.flatMap(({ Type, Name }) => (Type === 'volume' && Name !== undefined ? [Name] : [])),
    );
  }
}

// linux/mount.h
const MS_BIND = 4096;
const MS_REC = 16384;

/** Opens a place inside a volume. Links lead nowhere outside the volume. */
function openSubpath(mountpoint: string, subpath: string): number {
  const root = openSync(mountpoint, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    return openInRoot(root, subpath, O_PATH);
  } catch (error) {
    const isMissing = (error as NodeJS.ErrnoException).code === 'ENOENT';
    const reason = isMissing
      ? `lstat ${join(mountpoint, missingPart(root, subpath))}: no such file or directory`
      : messageOf(error);
    throw (isMissing ? notFound : invalid)(`cannot access path ${join(mountpoint, subpath)}: ${reason}`, {
      code: 'VOLUME_SUBPATH',
      cause: error,
    });
  } finally {
    closeSync(root);
  }
}

/** Returns the path up to the first name that is not there, and including it. */
function missingPart(root: number, subpath: string): string {
  const names = subpath.split('/');
  const part = (count: number): string => names.slice(0, count).join('/');
  // The search halves its range, because a client may write thousands of names.
  let [there, missing] = [0, names.length];
  while (missing - there > 1) {
    const middle = (there + missing) >> 1;
    try {
      closeFd(openInRoot(root, part(middle), O_PATH));
      there = middle;
    } catch {
      missing = middle;
    }
  }
  return part(missing);
}

/** Unmounts and removes what a killed daemon left below `placesRoot`. */
export async function clearPlaces(placesRoot: string): Promise<void> {
  const root = await realpath(placesRoot).catch(() => undefined);
  if (root === undefined) return;
  for (const point of (await mountPointsBelow(root)).toReversed()) await detachMount(point);
  await rm(root, { recursive: true });
}
