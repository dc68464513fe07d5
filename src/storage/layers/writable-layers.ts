/** The writable layers of containers: which exist, what lies below each, and who has it mounted. */
import { existsSync } from 'node:fs';
import { mkdir, readdir, rename, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { conflict, internal, invalid, notFound, unavailable } from '../../errors/engine-error.js';
import type { IdMaps, Owner } from '../../ports/id-maps.js';
import type { Digest } from '../../ports/storage.js';
import { QuickReader } from '../../sys/files/quick-reader.js';
import { letPass } from '../../sys/users/id-access.js';
import type { StorageDriver } from '../drivers/driver.js';
import { KeyedLock } from '../keyed-lock.js';
import { storageError } from '../storage-error.js';
import type { InitLayers } from './init-layers.js';
import type { Layout } from './layout.js';
import { mapsLink, mapsText, readMaps } from './maps-link.js';
import { NO_PARENT, parentLink } from './parent-link.js';
import type { ReadOnlyLayers } from './read-only-layers.js';
import type { Trash } from './trash.js';

interface WritableLayer {
  readonly id: string;
  readonly parent: Digest | undefined;
  /** There is no init layer below it. */
  readonly isBare: boolean;
  /** It is for one mount. Such a layer, as a bare one, is used by no later daemon, so this is not on the disk. */
  readonly isBrief: boolean;
  /** Its files belong to the users of a container that has users of its own. */
  readonly maps: IdMaps | undefined;
  /** Calls of `mount` without their `unmount`. */
  mounts: number;
  /** Whether it is mounted; it may be from the time of an earlier daemon. */
  isMounted: boolean;
}

export interface WritableOptions {
  readonly storageOpt?: Readonly<Record<string, string>>;
  /** Leaves out the init layer. */
  readonly isBare?: boolean;
  readonly isBrief?: boolean;
  /** The files below are shown as those of these users, who own what is changed. */
  readonly maps?: IdMaps | undefined;
}

export interface WritableLayersDeps {
  readonly layout: Layout;
  readonly driver: StorageDriver;
  readonly readOnly: ReadOnlyLayers;
  readonly inits: InitLayers;
  readonly trash: Trash;
  /** The root of containers, which must be able to pass through their directories. */
  readonly owner: Owner;
}

export class WritableLayers {
  readonly #layers = new Map<string, WritableLayer>();
  readonly #lock = new KeyedLock();

  constructor(private readonly deps: WritableLayersDeps) {}

  /** Reads the directories and which of them are mounted; damaged ones go to the trash and are returned. */
  async load(): Promise<string[]> {
    const { layout, driver, trash } = this.deps;
    const removed: string[] = [];
    const mounted = new Set(await driver.recover());
    const links = new QuickReader();
    for (const id of await readdir(layout.writable)) {
      const parent = await links.link(parentLink(layout.container(id))).catch(() => undefined);
      const isMounted = mounted.has(id);
      if (parent !== undefined) {
        this.#layers.set(id, {
          id,
          parent: parent === NO_PARENT ? undefined : (parent as Digest),
          isBare: false,
          isBrief: false,
          maps: await readMaps(layout.container(id), links),
          mounts: 0,
          isMounted,
        });
        continue;
      }
      if (isMounted) await driver.unmount(id);
      await trash.take(layout.container(id));
      removed.push(`writable layer ${id}`);
    }
    return removed;
  }

  ids(): string[] {
    return [...this.#layers.keys()];
  }

  /** Returns the users of a layer's own; undefined when it has none, or does not exist. */
  mapsOf(id: string): IdMaps | undefined {
    return this.#layers.get(id)?.maps;
  }

  /** Returns the layer below a writable one. @throws EngineError not-found. */
  parentOf(id: string): Digest | undefined {
    return this.#get(id).parent;
  }

  /** Returns the directories below a writable layer, the nearest first. @throws EngineError not-found. */
  below(id: string): string[] {
    const { parent, isBare } = this.#get(id);
    if (isBare) return this.deps.readOnly.directories(parent);
    if (parent !== undefined) return this.#above(parent);
    const init = ownInit(this.deps.layout.container(id));
    return existsSync(init) ? [init] : [];
  }

  /** Returns the init layer, if there is one, and the directories of the image. */
  #above(parent: Digest): string[] {
    return [...this.deps.inits.above(parent), ...this.deps.readOnly.directories(parent)];
  }

  create(id: string, parent: Digest | undefined, options: WritableOptions): Promise<void> {
    if (!/^[A-Za-z0-9][A-Za-z0-9_.-]*$/.test(id)) throw invalid(`invalid layer id ${JSON.stringify(id)}`);
    const { layout, driver, trash, owner } = this.deps;
    const { storageOpt = {}, isBare = false, isBrief = false, maps } = options;
    if (maps && !driver.mapped)
      throw unavailable(
        'users of its own for a container: the storage driver cannot show images to them; overlay2 can',
      );
    return this.#lock.run(id, async () => {
      if (this.#layers.has(id)) throw conflict(`writable layer ${id} exists already`, { code: 'LAYER_EXISTS' });
      const staging = layout.newStaging();
      try {
        await mkdir(staging, { mode: 0o710 });
        await letPass(staging, owner);
        const below = isBare ? this.deps.readOnly.directories(parent) : await this.#makeBelow(staging, parent);
        await driver.createWritable(staging, below, storageOpt, id);
        if (maps) {
          await driver.mapped?.own(staging, maps);
          await symlink(mapsText(maps), mapsLink(staging));
        }
        await symlink(parent ?? NO_PARENT, parentLink(staging));
        await rename(staging, layout.container(id));
      } catch (error) {
        await trash.take(staging);
        throw storageError(error, `creating the writable layer of ${id}`);
      } finally {
        layout.leaveStaging(staging);
      }
      this.#layers.set(id, { id, parent, isBare, isBrief, maps, mounts: 0, isMounted: false });
    });
  }

  /** Makes the init layer if it is missing. Returns the directories below the container. */
  async #makeBelow(staging: string, parent: Digest | undefined): Promise<string[]> {
    const { inits } = this.deps;
    if (parent !== undefined) {
      await inits.ensure(parent);
      return this.#above(parent);
    }
    const init = ownInit(staging);
    await inits.make(init, []);
    return [init];
  }

  mount(id: string): Promise<string> {
    const { driver } = this.deps;
    return this.#lock.run(id, async () => {
      const layer = this.#get(id);
      if (!layer.isMounted) {
        if (layer.maps) await driver.mapped?.mount(id, this.below(id), layer.maps, layer.isBrief);
        else await driver.mount(id, this.below(id), layer.isBrief);
        layer.isMounted = true;
      }
      layer.mounts++;
      return driver.root(id);
    });
  }

  unmount(id: string): Promise<void> {
    return this.#lock.run(id, async () => {
      const layer = this.#layers.get(id);
      if (!layer) return;
      if (layer.mounts > 0) layer.mounts--;
      if (layer.mounts > 0 || !layer.isMounted) return;
      await this.#detach(layer);
    });
  }

  remove(id: string): Promise<void> {
    return this.#lock.run(id, async () => {
      const layer = this.#layers.get(id);
      if (!layer) return;
      if (layer.isMounted) await this.#detach(layer);
      await this.deps.trash.take(this.deps.layout.container(id));
      this.#layers.delete(id);
    });
  }

  /** Unmounts a layer and takes it out of the store: it is in the returned staging directory then, and forgotten. */
  takeOut(id: string): Promise<string> {
    const { layout } = this.deps;
    return this.#lock.run(id, async () => {
      const layer = this.#get(id);
      if (layer.isMounted) await this.#detach(layer);
      const staging = layout.newStaging();
      try {
        await rename(layout.container(id), staging);
      } catch (error) {
        layout.leaveStaging(staging);
        throw storageError(error, `moving the writable layer of ${id}`);
      }
      this.#layers.delete(id);
      return staging;
    });
  }

  /**
   * Calls `work` with the difference between a writable layer and what is below it.
   * @param isShape tells that `work` reads no contents of files.
   * @throws EngineError not-found.
   */
  async withDifference<T>(
    id: string,
    isShape: boolean,
    work: (diffDir: string, below: readonly string[]) => Promise<T>,
  ): Promise<T> {
    const { layout, driver, trash } = this.deps;
    const below = this.below(id);
    const scratch = layout.newStaging();
    try {
      return await work(await driver.difference(id, below, scratch, isShape), below);
    } finally {
      await trash.take(scratch);
      layout.leaveStaging(scratch);
    }
  }

  #get(id: string): WritableLayer {
    const layer = this.#layers.get(id);
    if (!layer) throw notFound(`writable layer ${id} does not exist`, { code: 'LAYER_NOT_FOUND' });
    return layer;
  }

  async #detach(layer: WritableLayer): Promise<void> {
    try {
      await this.deps.driver.unmount(layer.id);
    } catch (error) {
      throw internal(`unmounting the file system of ${layer.id}`, { cause: error });
    }
    layer.isMounted = false;
  }
}

/** Returns the init layer of a container without an image. */
const ownInit = (directory: string): string => join(directory, 'init');
