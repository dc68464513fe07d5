/** The writable layers of containers: their directories and their mounts. */
import { existsSync } from 'node:fs';
import { chmod, chown, lstat, mkdir, readdir, readlink, rename, symlink } from 'node:fs/promises';
import { join } from 'node:path';
import { conflict, internal, invalid, notFound } from '../../errors/engine-error.js';
import type { Owner } from '../../ports/id-maps.js';
import type { Digest } from '../../ports/storage.js';
import { letPass } from '../../sys/users/id-access.js';
import { detachMount, MAX_MOUNT_OPTIONS_BYTES, mountFileSystem, mountPointsBelow } from '../../sys/mount/mount.js';
import { storageError } from '../storage-error.js';
import { KeyedLock } from './keyed-lock.js';
import type { InitLayers } from './init-layers.js';
import { EMPTY, type Layout } from './layout.js';
import type { ReadOnlyLayer, ReadOnlyLayers } from './read-only-layers.js';
import type { SizeLimits } from './size-limits.js';
import type { Trash } from './trash.js';

interface WritableLayer {
  readonly id: string;
  readonly parent: Digest | undefined;
  /** Calls of `mount` without their `unmount`. */
  mounts: number;
  /** Whether the kernel has it mounted; it may be from the time of an earlier daemon. */
  isMounted: boolean;
}

export interface WritablePaths {
  readonly diff: string;
  readonly work: string;
  readonly merged: string;
}

const NO_PARENT = 'none';

export class WritableLayers {
  readonly #layers = new Map<string, WritableLayer>();
  readonly #lock = new KeyedLock();

  constructor(
    private readonly layout: Layout,
    private readonly readOnly: ReadOnlyLayers,
    private readonly inits: InitLayers,
    private readonly sizes: SizeLimits,
    private readonly trash: Trash,
    /** This owner gets directories that no image has. */
    private readonly owner: Owner,
    /** Options that every mount gets, beginning with a comma. */
    private readonly mountOptions: string,
    /** Descriptor of the directory of the read-only layers. */
    private readonly layersFd: number,
  ) {}

  /** Reads the directories and which of them are mounted; damaged ones go to the trash and are returned. */
  async load(): Promise<string[]> {
    const removed: string[] = [];
    const mounted = new Set(await mountPointsBelow(this.layout.writable));
    for (const id of await readdir(this.layout.writable)) {
      const parent = await readlink(join(this.layout.writable, id, 'parent')).catch(() => undefined);
      const isMounted = mounted.has(this.paths(id).merged);
      if (parent !== undefined) {
        this.#layers.set(id, {
          id,
          parent: parent === NO_PARENT ? undefined : (parent as Digest),
          mounts: 0,
          isMounted,
        });
        continue;
      }
      if (isMounted) await detachMount(this.paths(id).merged);
      await this.trash.take(join(this.layout.writable, id));
      removed.push(`writable layer ${id}`);
    }
    this.sizes.load(this.layout.writable);
    return removed;
  }

  ids(): string[] {
    return [...this.#layers.keys()];
  }

  paths(id: string): WritablePaths {
    const at = join(this.layout.writable, id);
    return { diff: join(at, 'diff'), work: join(at, 'work'), merged: join(at, 'merged') };
  }

  /** The layer below a writable one. @throws EngineError not-found. */
  parentOf(id: string): Digest | undefined {
    return this.#get(id).parent;
  }

  /** Difference directories below a writable layer, the nearest first. @throws EngineError not-found. */
  lowerDirs(id: string): string[] {
    const { parent } = this.#get(id);
    if (parent === undefined) return existsSync(this.#ownInit(id)) ? [this.#ownInit(id)] : [];
    return this.#below(parent).map((part) => join(this.layout.layers, part));
  }

  /** Init layer, if there is one, and difference directories of the image, relative to the directory of the layers. */
  #below(parent: Digest): string[] {
    const init = this.inits.above(parent);
    return [
      ...(init === undefined ? [] : [`${init}/init`]),
      ...this.readOnly.chain(parent).map(({ shortId }) => `${shortId}/diff`),
    ];
  }

  /** That of a container without an image. */
  #ownInit(id: string): string {
    return join(this.layout.writable, id, 'init');
  }

  create(id: string, parent: Digest | undefined, storageOpt: Readonly<Record<string, string>>): Promise<void> {
    if (!/^[A-Za-z0-9][A-Za-z0-9_.-]*$/.test(id)) throw invalid(`invalid layer id ${JSON.stringify(id)}`);
    return this.#lock.run(id, async () => {
      if (this.#layers.has(id)) throw conflict(`writable layer ${id} exists already`, { code: 'LAYER_EXISTS' });
      const top = parent === undefined ? undefined : this.readOnly.get(parent);
      const limitBytes = this.sizes.bytesFor(storageOpt);
      const staging = this.layout.newStaging();
      try {
        await mkdir(staging, { mode: 0o710 });
        await letPass(staging, this.owner);
        if (limitBytes !== undefined) this.sizes.apply(staging, limitBytes);
        await Promise.all([
          parent === undefined ? this.inits.make(join(staging, 'init'), []) : this.inits.ensure(parent),
          this.#makeUpper(join(staging, 'diff'), top),
          mkdir(join(staging, 'work'), { mode: 0o700 }),
          mkdir(join(staging, 'merged'), { mode: 0o700 }),
          // A link and not a file: it is part of the directory's metadata, so a crash cannot leave it empty.
          symlink(parent ?? NO_PARENT, join(staging, 'parent')),
        ]);
        await rename(staging, join(this.layout.writable, id));
      } catch (error) {
        await this.trash.take(staging);
        throw storageError(error, `creating the writable layer of ${id}`);
      } finally {
        this.layout.leaveStaging(staging);
      }
      this.#layers.set(id, { id, parent, mounts: 0, isMounted: false });
    });
  }

  mount(id: string): Promise<string> {
    return this.#lock.run(id, async () => {
      const layer = this.#get(id);
      const { merged } = this.paths(id);
      if (!layer.isMounted) {
        await this.#mount(layer);
        layer.isMounted = true;
      }
      layer.mounts++;
      return merged;
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

  /** As LayerStore.mountImage. */
  async mountImage(chainId: Digest, at: string): Promise<void> {
    const layers = `/proc/self/fd/${this.layersFd}`;
    const lower = this.readOnly.chain(chainId).map(({ shortId }) => `${layers}/${shortId}/diff`);
    // overlayfs wants two read-only directories. An empty one adds nothing. It has to exist as long as the mount: if it
    // were removed, the root of the mount could not be listed any more.
    await this.#overlay(`lowerdir=${[...lower, `${layers}/../${EMPTY}`].join(':')}`, at);
  }

  remove(id: string): Promise<void> {
    return this.#lock.run(id, async () => {
      const layer = this.#layers.get(id);
      if (!layer) return;
      if (layer.isMounted) await this.#detach(layer);
      await this.trash.take(join(this.layout.writable, id));
      this.#layers.delete(id);
    });
  }

  #get(id: string): WritableLayer {
    const layer = this.#layers.get(id);
    if (!layer) throw notFound(`writable layer ${id} does not exist`, { code: 'LAYER_NOT_FOUND' });
    return layer;
  }

  /** The root directory of a container has the attributes of its image's. */
  async #makeUpper(path: string, top: ReadOnlyLayer | undefined): Promise<void> {
    await mkdir(path, { mode: 0o755 });
    const root = top && (await lstat(this.layout.diff(top.shortId)));
    const { uid, gid } = root ?? this.owner;
    if (uid !== 0 || gid !== 0) await chown(path, uid, gid);
    await chmod(path, root ? root.mode & 0o7777 : 0o755);
  }

  async #detach(layer: WritableLayer): Promise<void> {
    try {
      await detachMount(this.paths(layer.id).merged);
    } catch (error) {
      throw internal(`unmounting the file system of ${layer.id}`, { cause: error });
    }
    layer.isMounted = false;
  }

  async #mount(layer: WritableLayer): Promise<void> {
    const { diff, work, merged } = this.paths(layer.id);
    const lower = this.lowerDirs(layer.id);
    // overlayfs wants something below: without anything else the layer's own empty mount point does.
    const options = `lowerdir=${lower.length === 0 ? merged : lower.join(':')},upperdir=${diff},workdir=${work}`;
    const isPlain =
      Buffer.byteLength(options + this.mountOptions) <= MAX_MOUNT_OPTIONS_BYTES && !/[:,\\]/.test(this.layout.root);
    await this.#overlay(
      isPlain || layer.parent === undefined ? options : this.#shortOptions(layer.id, this.#below(layer.parent)),
      merged,
    );
  }

  /** For deep images: layers named through a descriptor of their directory, which is short wherever that may be. */
  #shortOptions(id: string, lower: readonly string[]): string {
    const base = `/proc/self/fd/${this.layersFd}`;
    const own = `${base}/../writable/${id}`;
    return `lowerdir=${lower.map((part) => `${base}/${part}`).join(':')},upperdir=${own}/diff,workdir=${own}/work`;
  }

  async #overlay(options: string, merged: string): Promise<void> {
    const data = options + this.mountOptions;
    if (Buffer.byteLength(data) > MAX_MOUNT_OPTIONS_BYTES)
      throw invalid('the image has too many layers to be mounted', { code: 'LAYER_DEPTH' });
    try {
      await mountFileSystem('overlay', merged, 'overlay', data);
    } catch (error) {
      throw internal('mounting the root file system', { cause: error });
    }
  }
}
