/**
 * The records of images on disk, and the entries in memory that they have. Several images of an index have records of
 * their own, of which one is named by the ID that they share: it comes last when they are made together and goes first
 * when they are deleted together, so that after a crash without it the others are known to be no whole image.
 */
import type { CreateImageOptions } from '../ports/images.js';
import type { Digest, LayerStore } from '../ports/storage.js';
import { chainOf } from '../ports/chain-id.js';
import { dataLoss, messageOf } from '../errors/engine-error.js';
import type { Urgent } from '../sys/files/reserve.js';
import { inLanes } from '../text/in-lanes.js';
import { parseConfig, requireModest } from './config-document.js';
import { ImageContent, type ImageMetadata } from './content.js';
import type { ImageEntries } from './entries.js';
import { furtherKey, idOfRecord } from './identity.js';
import { type Creation, entryOver, type ImageEntry, type ImageOfId } from './image-entry.js';

/** Builds that find everything in the cache come one after the other, and each names its image anew. */
const NOTED_MS = 1000;

export interface ImageRecordsDeps {
  readonly layers: LayerStore;
  readonly entries: ImageEntries;
  /** Runs a write that cannot wait for room on the disk. */
  readonly urgent?: Urgent | undefined;
}

export interface NewRecord extends CreateImageOptions {
  /** Another record is to be named by the ID, which comes later. */
  readonly isFurther?: boolean;
}

export class ImageRecords {
  readonly #content: ImageContent;
  readonly #layers: LayerStore;
  readonly #entries: ImageEntries;
  readonly #urgent: Urgent;
  /** Images that are being written, by the names of their records. */
  readonly #creating = new Map<Digest, Creation>();
  /** Images that have changed in memory only. */
  readonly #noted = new Set<ImageEntry>();
  #timer: NodeJS.Timeout | undefined;
  /** Removals that are under way, by the ID. */
  readonly #leaving = new Map<Digest, Promise<unknown>>();

  constructor(root: string, { layers, entries, urgent = (write) => write() }: ImageRecordsDeps) {
    this.#content = new ImageContent(root);
    this.#layers = layers;
    this.#entries = entries;
    this.#urgent = urgent;
  }

  /** Makes the directories, and lists the names of the records. */
  open(): Promise<Digest[]> {
    return this.#content.open();
  }

  /**
   * Reads the records. Resolves with what was removed, and why. Nothing is released here, because not all who hold
   * layers are there yet.
   */
  async load(keys: readonly Digest[], isNamed: (id: Digest) => boolean): Promise<string[]> {
    const removed: string[] = [];
    const further: { readonly key: Digest; readonly id: Digest; readonly metadata: ImageMetadata }[] = [];
    const unless = async (key: Digest, work: () => Promise<string | undefined>): Promise<void> => {
      const reason = await work().catch(messageOf);
      if (reason === undefined) return;
      await this.#content.remove(key);
      removed.push(`image ${key}: ${reason}`);
    };
    await inLanes(keys, (key) =>
      unless(key, async () => {
        const metadata = await this.#content.readMetadata(key);
        const id = idOfRecord(key, metadata);
        if (id === key) return this.#load({ id, key, metadata });
        further.push({ key, id, metadata });
        return undefined;
      }),
    );
    const known = new Set(keys);
    await inLanes(further, async (record) => {
      const { key, id, metadata } = record;
      // A crash has left a record whose image has taken another place.
      if (this.#entries.find(id, metadata.config ?? key)) await this.#content.remove(key);
      else if (metadata.isFurther && !known.has(id) && !isNamed(id))
        await unless(key, async () => `it is a part of ${id}, which is not here as a whole`);
      else await unless(key, () => this.#load(record));
    });
    return removed;
  }

  /** Says why an image cannot be used, undefined when it can. */
  async #load({ id, key, metadata }: Pick<ImageEntry, 'id' | 'key' | 'metadata'>): Promise<string | undefined> {
    const bytes = (await this.#content.read(key, metadata)) ?? (await this.#moved(key, metadata));
    if (!bytes) return 'its configuration is damaged';
    const config = parseConfig(bytes);
    const topLayer = chainOf(config.rootfs.diff_ids).at(-1);
    if (topLayer !== undefined && !this.#layers.find(topLayer)) return `its layer ${topLayer} is missing`;
    this.#entries.add(entryOver(this.#layers, { id, key, config, configSizeBytes: bytes.length, metadata }));
    return undefined;
  }

  /** Ends what a crash has interrupted: the record of another image of the index takes the place of this one. */
  async #moved(key: Digest, { config }: ImageMetadata): Promise<Buffer | undefined> {
    const bytes = config && (await this.#content.read(furtherKey(key, config), { config }));
    if (bytes) await this.#content.write(key, bytes);
    return bytes;
  }

  /** Returns the names of the records of all images, including those that are being written. */
  keys(): Digest[] {
    return [...this.#entries.keys(), ...this.#creating.keys()];
  }

  /** Writes the record of an image, which may be here already. The image is whole when the promise resolves. */
  async create(of: ImageOfId, bytes: Buffer, options: NewRecord): Promise<ImageEntry> {
    const { id, configDigest } = of;
    while (this.#leaving.has(id)) await this.#leaving.get(id);
    const existing = this.#entries.find(id, configDigest);
    if (existing) return existing;
    const isSame = (other: Creation): boolean => other.id === id && other.configDigest === configDigest;
    const before = [...this.#creating.values()].find(isSame);
    if (before) return before.entry;
    const isTaken = options.isFurther === true || this.#entries.hasKey(id) || this.#creating.has(id);
    const key = isTaken ? furtherKey(id, configDigest) : id;
    const entry = this.#create({ id, key, configDigest }, bytes, options);
    this.#creating.set(key, { id, configDigest, entry });
    return entry.finally(() => this.#creating.delete(key));
  }

  async #create(
    { id, key, configDigest }: Pick<ImageEntry, 'id' | 'key' | 'configDigest'>,
    bytes: Buffer,
    { parent, published, document }: CreateImageOptions,
  ): Promise<ImageEntry> {
    const config = document ?? parseConfig(bytes);
    requireModest(config, bytes);
    const topLayer = chainOf(config.rootfs.diff_ids).at(-1);
    if (topLayer !== undefined && !this.#layers.find(topLayer)) {
      throw dataLoss(`image ${id} needs layer ${topLayer}, which is not here`, { code: 'LAYER_MISSING' });
    }
    const metadata: ImageMetadata = {
      parent: parent ?? '',
      lastTagTime: undefined,
      ...(published === undefined ? {} : { published }),
      ...(key === configDigest ? {} : { config: configDigest }),
      ...(key === id ? {} : { isFurther: true }),
    };
    // The entry is made before the first wait, so that no removal can come between.
    const entry = entryOver(this.#layers, { id, key, config, configSizeBytes: bytes.length, metadata });
    entry.lastUsedMs = Date.now();
    try {
      await this.#layers.recorded();
      // The record comes first, as the bytes are an image from the moment when they are there.
      if (parent !== undefined || published !== undefined) await this.#content.writeMetadata(key, metadata);
      await this.#content.write(key, bytes);
    } catch (error) {
      if (topLayer !== undefined) await this.#layers.release(topLayer);
      throw error;
    }
    this.#entries.add(entry);
    return entry;
  }

  /**
   * Changes the metadata of an image, one change after the other. Memory changes when the change is on disk, and not at
   * all when that fails.
   */
  describe(entry: ImageEntry, change: (metadata: ImageMetadata) => ImageMetadata): Promise<void> {
    return this.#inTurn(entry, async () => {
      const metadata = change(entry.metadata);
      await this.#content.writeMetadata(entry.key, metadata);
      this.#set(entry, { key: entry.key, metadata });
    });
  }

  /** Does so for what a crash may lose: memory changes at once, and the disk a moment later, once for many changes. */
  note(entry: ImageEntry, change: (metadata: ImageMetadata) => ImageMetadata): void {
    this.#set(entry, { key: entry.key, metadata: change(entry.metadata) });
    this.#noted.add(entry);
    this.#timer ??= setTimeout(() => void this.writeNoted(), NOTED_MS).unref();
  }

  /** Resolves when all that was noted is on the disk, where that takes it. */
  async writeNoted(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    const noted = new Set(this.#noted);
    this.#noted.clear();
    await inLanes(noted, async (entry) => {
      // It may have been removed while others were written.
      if (this.#isListed(entry)) await this.describe(entry, (metadata) => metadata).catch(() => undefined);
    });
  }

  #inTurn(entry: ImageEntry, write: () => Promise<void>): Promise<void> {
    const done = (entry.saving ?? Promise.resolve()).then(write);
    entry.saving = done.catch(() => undefined);
    return done;
  }

  #isListed(entry: ImageEntry): boolean {
    return this.#entries.of(entry.id).includes(entry);
  }

  #set(entry: ImageEntry, { key, metadata }: Pick<ImageEntry, 'key' | 'metadata'>): void {
    const isListed = this.#isListed(entry);
    if (isListed) this.#entries.remove(entry);
    entry.key = key;
    entry.metadata = metadata;
    if (isListed) this.#entries.add(entry);
  }

  /** Deletes images of one ID, some or all. Resolves with the deleted layers, those of an image top first. */
  async remove(images: readonly ImageEntry[]): Promise<Digest[]> {
    const [{ id } = { id: undefined }] = images;
    if (id === undefined) return [];
    for (const entry of images) this.#entries.remove(entry);
    // One removal after the other: whoever waits for the last one has waited for all.
    const removing = Promise.resolve(this.#leaving.get(id)).then(() =>
      this.#removeAll(images.toSorted((a, b) => Number(b.key === id) - Number(a.key === id))),
    );
    this.#leaving.set(
      id,
      removing.catch(() => undefined),
    );
    const last = this.#leaving.get(id);
    try {
      return await removing;
    } finally {
      if (this.#leaving.get(id) === last) this.#leaving.delete(id);
    }
  }

  async #removeAll(images: readonly ImageEntry[]): Promise<Digest[]> {
    const deleted: Digest[] = [];
    for (const entry of images) {
      await entry.saving;
      const next = entry.key === entry.id ? this.#entries.of(entry.id)[0] : undefined;
      await (next === undefined ? this.#content.remove(entry.key) : this.#takePlace(next));
      if (entry.topLayer !== undefined) deleted.push(...(await this.#layers.release(entry.topLayer)));
    }
    return deleted;
  }

  /**
   * Gives the record that is named by the ID to another image of the index: names lead to that one, also in a release
   * that has one image for an index. The image that had it is gone as soon as its metadata are replaced.
   */
  #takePlace(next: ImageEntry): Promise<void> {
    return this.#inTurn(next, () =>
      this.#urgent(async () => {
        const { id, key, configDigest } = next;
        const bytes = await this.bytesOf(next);
        if (!bytes) return this.#content.remove(id);
        const { isFurther: _, ...described } = next.metadata;
        const metadata = { ...described, config: configDigest };
        await this.#content.writeMetadata(id, metadata);
        await this.#content.write(id, bytes);
        this.#set(next, { key: id, metadata });
        await this.#content.remove(key);
      }),
    );
  }

  /** Returns the configuration; undefined when it is damaged. */
  bytesOf({ key, configDigest }: Pick<ImageEntry, 'key' | 'configDigest'>): Promise<Buffer | undefined> {
    return this.#content.read(key, { config: configDigest });
  }
}
