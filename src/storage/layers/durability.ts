/**
 * Knows the layers whose data may still be in memory only. Waiting for the disk would make a pull as slow as the disk,
 * but a layer that a power cut tore must not pass for whole. So a layer is marked before it appears, and the mark is
 * removed when the file system was synced. A layer with a mark from before a reboot is checked against its digest.
 */
import { readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { Logger } from '../../ports/logger.js';
import { inLanes } from '../../text/in-lanes.js';
import { recordText } from '../record-store.js';
import { LateSyncs } from '../../sys/files/late-syncs.js';
import { syncFileSystem } from '../../sys/files/sync-file-system.js';

/** A sync follows the last new layer after this time: the pull is over then, and the kernel has begun to write. */
const DELAY_MS = 5_000;

export class Durability {
  readonly #records: LateSyncs;
  #bootId: Promise<string> | undefined;
  #timer: NodeJS.Timeout | undefined;
  #syncing: Promise<void> = Promise.resolve();

  constructor(
    /** Holds one file per marked layer: its name is the layer's, its content the ID of the boot. */
    private readonly directory: string,
    private readonly log: Logger,
  ) {
    this.#records = new LateSyncs((error) => log.warn({ err: error }, 'records of layers not synced'));
  }

  /** Marks a layer. Call it before the record of the layer is written, whose sync makes the mark durable, too. */
  async mark(layer: string): Promise<void> {
    this.#bootId ??= bootId();
    await writeFile(join(this.directory, layer), await this.#bootId, { mode: 0o600 });
    this.#schedule();
  }

  /**
   * Writes the record of a layer. It is synced later, so that the next layer need not wait; a crash of the machine may
   * lose it, or leave one that is damaged and none.
   */
  async writeRecord(path: string, record: unknown): Promise<void> {
    await this.#records.write(path, recordText(record));
  }

  /** Resolves when all records are on the disk. */
  recorded(): Promise<void> {
    return this.#records.sync();
  }

  /** Returns the names of layers that a reboot may have torn. The marks stay until the next sync. */
  async load(): Promise<string[]> {
    const names = await readdir(this.directory);
    if (names.length > 0) this.#schedule();
    const current = await bootId();
    const torn: string[] = [];
    await inLanes(names, async (name) => {
      if ((await readFile(join(this.directory, name), 'utf8')) !== current) torn.push(name);
    });
    return torn;
  }

  /** Removes the marks of other layers, which are gone. */
  async keepOnly(layers: ReadonlySet<string>): Promise<void> {
    const gone = (await readdir(this.directory)).filter((name) => !layers.has(name));
    await Promise.all(gone.map((name) => rm(join(this.directory, name), { force: true })));
  }

  /** Syncs the file system and removes the marks from before the sync. Failures are logged; the marks stay then. */
  async sync(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#syncing = this.#syncing.then(() => this.#sync());
    await this.#syncing;
  }

  /** Cancels a sync that is due: the marks stay, and the next start syncs. */
  async close(): Promise<void> {
    clearTimeout(this.#timer);
    await this.#records.sync().catch((error: unknown) => this.log.warn({ err: error }, 'records of layers not synced'));
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
      await syncFileSystem(this.directory);
      await Promise.all(names.map((name) => rm(join(this.directory, name), { force: true })));
    } catch (error) {
      this.log.warn({ err: error }, 'layers not synced');
    }
  }
}

function bootId(): Promise<string> {
  return readFile('/proc/sys/kernel/random/boot_id', 'utf8');
}
