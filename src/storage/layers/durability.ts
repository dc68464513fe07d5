/**
 * Layers whose data may still be in memory only. Waiting for the disk would make a pull as slow as the disk, and a
 * layer that a power cut tore must not pass for whole: a layer is marked before it appears, the marks go when the file
 * system was synced, and what is still marked from before a reboot is checked against its digest.
 */
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../ports/logger.js';
import type { WorkerPool } from '../../workers/pool.js';

/** After the last new layer: by then a pull is over, and the kernel has begun to write by itself. */
const DELAY_MS = 5_000;

export class Durability {
  #timer: NodeJS.Timeout | undefined;
  #syncing: Promise<void> = Promise.resolve();

  constructor(
    /** Holds one file per marked layer: its name is the layer's, its content the ID of the boot. */
    private readonly directory: string,
    private readonly workers: WorkerPool,
    private readonly log: Logger,
  ) {}

  /** Call before the record of the layer is written, whose own sync makes the mark durable too. */
  async mark(layer: string): Promise<void> {
    await writeFile(join(this.directory, layer), await bootId(), { mode: 0o600 });
    this.#schedule();
  }

  /** Names of layers that a reboot may have torn. The marks stay until the next sync. */
  async load(): Promise<string[]> {
    const names = await readdir(this.directory);
    if (names.length > 0) this.#schedule();
    const current = await bootId();
    const boots = await Promise.all(names.map((name) => readFile(join(this.directory, name), 'utf8')));
    return names.filter((_, i) => boots[i] !== current);
  }

  /** Takes the marks of other layers away: those are gone. */
  async keepOnly(layers: ReadonlySet<string>): Promise<void> {
    const gone = (await readdir(this.directory)).filter((name) => !layers.has(name));
    await Promise.all(gone.map((name) => rm(join(this.directory, name), { force: true })));
  }

  /**
   * Syncs the file system and takes the marks away that were there before. Failures are logged; the marks stay then.
   */
  async sync(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#syncing = this.#syncing.then(() => this.#sync());
    await this.#syncing;
  }

  /** Forgets a sync that is due: the marks keep, and the next start takes it up. */
  async close(): Promise<void> {
    clearTimeout(this.#timer);
    await this.#syncing;
  }

  #schedule(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.sync(), DELAY_MS).unref();
  }

  async #sync(): Promise<void> {
    try {
      const names = await readdir(this.directory);
      if (names.length === 0) return;
      await this.workers.run('sync-file-system', { path: this.directory });
      await Promise.all(names.map((name) => rm(join(this.directory, name), { force: true })));
    } catch (error) {
      this.log.warn({ err: error }, 'layers not synced');
    }
  }
}

function bootId(): Promise<string> {
  return readFile('/proc/sys/kernel/random/boot_id', 'utf8');
}
