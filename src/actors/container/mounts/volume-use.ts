/** The volumes of a container while it runs: mounted if they have to be, announced, and given to the runtime. */
import { mkdir, realpath, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { MountPoint } from '../../../ports/container.js';
import type { VolumePlace } from '../../../ports/volume-place.js';
import { detachMount, mountPointsBelow } from '../../../sys/mount/mount.js';
import type { ContainerRecord } from '../container.record.js';
import type { ContainerDeps } from '../deps.js';
import { labelSource } from './labels.js';
import { makeBindSource } from './mounts.js';
import { filesRoot } from './userns.js';
import { makeDirectories } from '../../../sys/files/make-directories.js';

export class VolumeUse {
  readonly #deps: Pick<ContainerDeps, 'volumes' | 'layers' | 'emit' | 'placesRoot' | 'idMaps' | 'relabel'>;
  readonly #record: ContainerRecord;
  /** This directory has a mount for each place that others could exchange, until the runtime has made its own mount. */
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
          await makeBindSource(point, filesRoot(this.#deps, this.#record));
          await labelSource(this.#deps, this.#record, point);
        }
        mounts.push(point.Type === 'image' ? { ...point, Source: await this.#placeImage(point) } : point);
        points.push(point);
        continue;
      }
      const place = await this.#deps.volumes.open(point.Name, this.#record.id);
      const mountpoint = join(place.root, place.path);
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
      mounts.push({ ...point, Source: await this.#place(place, point.Spec?.VolumeOptions?.Subpath) });
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
   * Returns the path for the runtime. What the path leads to must not change before the runtime has mounted it: a place
   * inside the volume, where containers may put links, and a volume whose way a plugin can change, get a mount of their
   * own. So does each volume of the daemon in a container with users of its own, which sees the files as theirs.
   */
  async #place(volume: VolumePlace, subpath = ''): Promise<string> {
    const maps = volume.isOwn === true ? this.#deps.layers.mapsOf(this.#record.id) : undefined;
    if (volume.path === '' && subpath === '' && !maps) return volume.root;
    const target = await this.#newPlace();
    await this.#deps.volumes.show(volume, subpath, target, maps);
    return target;
  }

  /**
   * Mounts the files of an image and returns the place for the runtime. The mount that the container gets keeps the
   * files.
   */
  async #placeImage({ TopLayer, Spec }: MountPoint): Promise<string> {
    const place = await this.#newPlace();
    await mkdir(place);
    // An image without layers has no files.
    const label = this.#deps.relabel && this.#record.labels?.mountLabel;
    const maps = this.#deps.layers.mapsOf(this.#record.id);
    if (TopLayer !== undefined) await this.#deps.layers.mountImage(TopLayer, place, label, maps);
    return this.#place({ root: place, path: '' }, Spec?.ImageOptions?.Subpath);
  }

  /** Returns a path that nothing has yet. */
  async #newPlace(): Promise<string> {
    await makeDirectories(this.#placesDir, { mode: 0o700 });
    return join(this.#placesDir, String(++this.#places));
  }

  #names(): Set<string> {
    return new Set(
      this.#record.mounts.flatMap(({ Type, Name }) => (Type === 'volume' && Name !== undefined ? [Name] : [])),
    );
  }
}

/** Unmounts and removes what a killed daemon left below `placesRoot`. */
export async function clearPlaces(placesRoot: string): Promise<void> {
  const root = await realpath(placesRoot).catch(() => undefined);
  if (root === undefined) return;
  for (const point of (await mountPointsBelow(root)).toReversed()) await detachMount(point);
  await rm(root, { recursive: true });
}
