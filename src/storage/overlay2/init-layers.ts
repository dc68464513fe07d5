/**
 * The layer between each image and its containers (tasks/init-layer.ts): made with the image's first container, gone
 * with the image.
 */
import { existsSync } from 'node:fs';
import { chmod, chown, lstat, mkdir, rename } from 'node:fs/promises';
import type { Owner } from '../../ports/id-maps.js';
import type { Digest } from '../../ports/storage.js';
import type { WorkerPool } from '../../workers/pool.js';
import { KeyedLock } from './keyed-lock.js';
import type { Layout } from './layout.js';
import type { ReadOnlyLayers } from './read-only-layers.js';
import type { Trash } from './trash.js';

export class InitLayers {
  readonly #lock = new KeyedLock();

  constructor(
    private readonly layout: Layout,
    private readonly readOnly: ReadOnlyLayers,
    private readonly trash: Trash,
    private readonly workers: WorkerPool,
    /** Of what no image has. */
    private readonly owner: Owner,
  ) {}

  /** Makes the one above `parent`, if it is not there yet. */
  ensure(parent: Digest): Promise<void> {
    const { shortId } = this.readOnly.get(parent);
    const path = this.layout.init(shortId);
    if (existsSync(path)) return Promise.resolve();
    return this.#lock.run(shortId, async () => {
      if (existsSync(path)) return;
      const staging = this.layout.newStaging();
      const lowerDirs = this.readOnly.chain(parent).map((layer) => this.layout.diff(layer.shortId));
      try {
        // The root directory that containers see is that of their topmost layer.
        const root = await lstat(this.layout.diff(shortId));
        await this.make(staging, lowerDirs);
        await chown(staging, root.uid, root.gid);
        await chmod(staging, root.mode & 0o7777);
        await rename(staging, path);
      } catch (error) {
        await this.trash.take(staging);
        throw error;
      } finally {
        this.layout.leaveStaging(staging);
      }
    });
  }

  /** Fills a new directory with what `lowerDirs` lack. */
  async make(path: string, lowerDirs: readonly string[]): Promise<void> {
    await mkdir(path, { mode: 0o755 });
    await this.workers.run('init-layer', { diffDir: path, lowerDirs, owner: this.owner });
  }

  /** Short id of the layer that has one above it; none for containers from before there were such layers. */
  above(parent: Digest): string | undefined {
    const { shortId } = this.readOnly.get(parent);
    return existsSync(this.layout.init(shortId)) ? shortId : undefined;
  }
}
