/**
 * The layer between each image and its containers (tasks/init-layer.ts): made with the image's first container, gone
 * with the image.
 */
import { existsSync } from 'node:fs';
import { chmod, chown, lstat, mkdir, rename } from 'node:fs/promises';
import type { Owner } from '../../ports/id-maps.js';
import type { Digest } from '../../ports/storage.js';
import type { WorkerPool } from '../../workers/pool.js';
import { KeyedLock } from '../keyed-lock.js';
import { layerGone } from '../storage-error.js';
import type { Layout } from './layout.js';
import type { ReadOnlyLayers } from './read-only-layers.js';
import type { Trash } from './trash.js';

export interface InitLayersDeps {
  readonly layout: Layout;
  readonly readOnly: ReadOnlyLayers;
  readonly trash: Trash;
  readonly workers: WorkerPool;
  /** Owner of what the image lacks. */
  readonly owner: Owner;
}

export class InitLayers {
  readonly #lock = new KeyedLock();

  constructor(private readonly deps: InitLayersDeps) {}

  /** Makes the init layer above `parent`, if it does not exist yet. */
  ensure(parent: Digest): Promise<void> {
    const { shortId } = this.deps.readOnly.get(parent);
    const path = this.deps.layout.init(shortId);
    if (existsSync(path)) return Promise.resolve();
    return this.#lock.run(shortId, async () => {
      if (existsSync(path)) return;
      const staging = this.deps.layout.newStaging();
      const lowerDirs = this.deps.readOnly.directories(parent);
      try {
        // The root directory that containers see is that of their topmost layer.
        const root = await lstat(lowerDirs[0] ?? '').catch((error: NodeJS.ErrnoException) => {
          throw error.code === 'ENOENT' ? layerGone(lowerDirs[0] ?? '') : error;
        });
        await this.make(staging, lowerDirs);
        await chown(staging, root.uid, root.gid);
        await chmod(staging, root.mode & 0o7777);
        await rename(staging, path);
      } catch (error) {
        await this.deps.trash.take(staging);
        throw error;
      } finally {
        this.deps.layout.leaveStaging(staging);
      }
    });
  }

  /** Fills a new directory with what `lowerDirs` lack. */
  async make(path: string, lowerDirs: readonly string[]): Promise<void> {
    await mkdir(path, { mode: 0o755 });
    await this.deps.workers.run('init-layer', { diffDir: path, lowerDirs, owner: this.deps.owner });
  }

  /** Returns a list with its directory; an empty one for containers from before there were such layers. */
  above(parent: Digest): string[] {
    const path = this.deps.layout.init(this.deps.readOnly.get(parent).shortId);
    return existsSync(path) ? [path] : [];
  }
}
