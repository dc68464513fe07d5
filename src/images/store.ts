/**
 * The image store: configurations on disk, names, and an index in memory from which all reads are served. Layers are
 * the layer store's; an image holds one reference on its top layer.
 */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { dataLoss, messageOf, notFound } from '../errors/engine-error.js';
import type { CreateImageOptions, Image, ImageStore, MadeImageOptions } from '../ports/images.js';
import type { PublishedImage } from '../ports/published-image.js';
import type { Digest, LayerStore } from '../ports/storage.js';
import { chainOf } from '../ports/chain-id.js';
import { inLanes } from '../text/in-lanes.js';
import type { Urgent } from '../sys/files/reserve.js';
import { parseConfig } from './config-document.js';
import { ImageChildren } from './children.js';
import { ImageContent, type ImageMetadata } from './content.js';
import { ImageHolds } from './holds.js';
import { idByManifest, type ImageIdentity } from './identity.js';
import { entryOver, type ImageEntry, imageOf } from './image-entry.js';
import { fullId, ImageLookup } from './lookup.js';
import type { MadeManifests } from './made-manifests.js';
import { canonicalName, canonicalString, familiarString, parseReference, withDefaultTag } from './reference.js';
import { References } from './references.js';

/** Uses of an image within this time are written to the disk as one. */
const SAVE_USE_MS = 60_000;

export interface ImageStoreOptions {
  readonly identity?: ImageIdentity;
  /** Runs a write that cannot wait for room on the disk. */
  readonly urgent?: Urgent;
}

export class FileImageStore implements ImageStore {
  readonly #identity: ImageIdentity;
  readonly #layers: LayerStore;
  readonly #content: ImageContent;
  readonly #references: References;
  readonly #lookup: ImageLookup;
  readonly #entries = new Map<Digest, ImageEntry>();
  readonly #children = new ImageChildren();
  readonly #holds = new ImageHolds();
  readonly #creating = new Map<Digest, { readonly configDigest: Digest; readonly entry: Promise<ImageEntry> }>();
  readonly #listeners = new Set<() => void>();
  #manifests: Pick<MadeManifests, 'make'> | undefined;

  /** Keeps everything below `<dataRoot>/image`. */
  constructor(dataRoot: string, layers: LayerStore, { identity = 'config', urgent }: ImageStoreOptions = {}) {
    this.#identity = identity;
    const root = join(dataRoot, 'image');
    this.#layers = layers;
    this.#content = new ImageContent(root);
    this.#references = new References(root, urgent);
    this.#lookup = new ImageLookup(this.#references, this.#entries);
  }

  async load(): Promise<{ readonly removed: readonly string[] }> {
    const removed: string[] = [];
    const ids = await this.#content.open();
    const aside = await this.#references.load();
    if (aside !== undefined) removed.push(`damaged image names, put aside as ${aside}`);
    await inLanes(ids, async (id) => {
      const reason = await this.#loadImage(id);
      if (reason === undefined) return;
      await this.#content.remove(id);
      removed.push(`image ${id}: ${reason}`);
    });
    const lost = new Map<string, undefined>();
    for (const id of this.#references.ids()) {
      if (!this.#entries.has(id)) for (const key of this.#references.of(id)) lost.set(key, undefined);
    }
    if (lost.size > 0) await this.#references.change(lost);
    removed.push(...[...lost.keys()].map((key) => `name ${key} of a missing image`));
    return { removed };
  }

  /** Says why an image cannot be used, undefined when it can. */
  async #loadImage(id: Digest): Promise<string | undefined> {
    try {
      const metadata = await this.#content.readMetadata(id);
      const bytes = await this.#content.read(id, metadata);
      if (!bytes) return 'its configuration is damaged';
      const config = parseConfig(bytes);
      const topLayer = chainOf(config.rootfs.diff_ids).at(-1);
      if (topLayer !== undefined && !this.#layers.find(topLayer)) return `its layer ${topLayer} is missing`;
      this.#publish(entryOver(this.#layers, { id, config, configSizeBytes: bytes.length, metadata }));
      return undefined;
    } catch (error) {
      return messageOf(error);
    }
  }

  #publish(entry: ImageEntry): void {
    this.#entries.set(entry.id, entry);
    this.#children.add(entry);
  }

  #withdraw(entry: ImageEntry): void {
    this.#entries.delete(entry.id);
    this.#children.remove(entry);
  }

  list(): readonly Image[] {
    return [...this.#entries.values()].map((entry) => this.#imageOf(entry));
  }

  /** Returns the IDs of all images, including those that are being written. */
  ids(): Digest[] {
    return [...this.#entries.keys(), ...this.#creating.keys()];
  }

  get(id: Digest): Image | undefined {
    const entry = this.#entries.get(id);
    return entry && this.#imageOf(entry);
  }

  resolve(reference: string): Image {
    const id = this.idOf(reference);
    const image = id && this.get(id);
    if (image) return image;
    const shown =
      fullId(reference) === undefined ? familiarString(withDefaultTag(parseReference(reference))) : reference;
    throw notFound(`No such image: ${shown}`, { code: 'NO_SUCH_IMAGE' });
  }

  /** Returns the ID of what a reference names. Throws `invalid` for a malformed one. */
  idOf(reference: string): Digest | undefined {
    return this.#lookup.find(reference);
  }

  /** True when the text found its image as an ID and not as a name. */
  isIdReference(reference: string): boolean {
    return this.#lookup.isId(reference);
  }

  async create(configBytes: Buffer, options: CreateImageOptions = {}): Promise<Image> {
    const configDigest: Digest = `sha256:${createHash('sha256').update(configBytes).digest('hex')}`;
    const id = this.idFor(configDigest, options.published);
    const existing = this.#entries.get(id);
    if (existing) return this.#imageOf(existing);
    let creating = this.#creating.get(id)?.entry;
    if (!creating) {
      creating = this.#create(id, configDigest, configBytes, options).finally(() => this.#creating.delete(id));
      this.#creating.set(id, { configDigest, entry: creating });
    }
    return this.#imageOf(await creating);
  }

  /** From now on images that are made here get manifests. */
  giveManifests(by: Pick<MadeManifests, 'make'>): void {
    this.#manifests = by;
  }

  async createMade(configBytes: Buffer, { parent, document }: MadeImageOptions = {}): Promise<Image> {
    const config = document ?? parseConfig(configBytes);
    const made = await this.#manifests?.make(configBytes, config.rootfs.diff_ids);
    try {
      const options = { ...(parent && { parent }), published: made?.published, document: config };
      return await this.create(configBytes, options);
    } finally {
      made?.close();
    }
  }

  /** Returns the ID that an image has or would get. */
  idFor(configDigest: Digest, published: PublishedImage | undefined): Digest {
    if (this.#identity === 'config' || published === undefined) return configDigest;
    const present = (id: Digest) => this.#entries.get(id) ?? this.#creating.get(id);
    return idByManifest(configDigest, published, (id) => present(id)?.configDigest);
  }

  async #create(
    id: Digest,
    configDigest: Digest,
    bytes: Buffer,
    { parent, published, document }: CreateImageOptions,
  ): Promise<ImageEntry> {
    const config = document ?? parseConfig(bytes);
    const topLayer = chainOf(config.rootfs.diff_ids).at(-1);
    if (topLayer !== undefined && !this.#layers.find(topLayer)) {
      throw dataLoss(`image ${id} needs layer ${topLayer}, which is not here`, { code: 'LAYER_MISSING' });
    }
    const metadata: ImageMetadata = {
      parent: parent ?? '',
      lastTagTime: undefined,
      ...(published === undefined ? {} : { published }),
      ...(id === configDigest ? {} : { config: configDigest }),
    };
    // The entry is made before the first wait, so that no removal can come between.
    const entry = entryOver(this.#layers, { id, config, configSizeBytes: bytes.length, metadata });
    entry.lastUsedMs = Date.now();
    try {
      // The record comes first, as the bytes are an image from the moment when they are there.
      if (parent !== undefined || published !== undefined) await this.#content.writeMetadata(id, metadata);
      await this.#content.write(id, bytes);
    } catch (error) {
      if (topLayer !== undefined) await this.#layers.release(topLayer);
      throw error;
    }
    this.#publish(entry);
    this.#changed();
    return entry;
  }

  async tag(references: string | readonly string[], id: Digest): Promise<void> {
    const entry = this.#entry(id);
    const keys = [references].flat().map((name) => canonicalString(withDefaultTag(parseReference(name))));
    // The name is written last, because it is what the client is told.
    const described = this.#describe(entry, (metadata) => ({ ...metadata, lastTagTime: new Date().toISOString() }));
    const previous = await this.#references.change(new Map(keys.map((key) => [key, id])), described);
    entry.lastUsedMs = Date.now();
    this.#changed(id, ...previous);
  }

  /**
   * Changes the metadata of an image, one change after the other. Memory changes when the change is on disk, and not at
   * all when that fails.
   */
  #describe(entry: ImageEntry, change: (metadata: ImageMetadata) => ImageMetadata): Promise<void> {
    const write = async (): Promise<void> => {
      const metadata = change(entry.metadata);
      await this.#content.writeMetadata(entry.id, metadata);
      const isListed = this.#entries.get(entry.id) === entry;
      if (isListed) this.#withdraw(entry);
      entry.metadata = metadata;
      if (isListed) this.#publish(entry);
    };
    const done = (entry.saving ?? Promise.resolve()).then(write);
    entry.saving = done.catch(() => undefined);
    return done;
  }

  /** Remembers durably which image this one was made from. */
  async setParent(id: Digest, parent: Digest): Promise<void> {
    await this.#describe(this.#entry(id), (metadata) => ({ ...metadata, parent }));
    this.#changed(id);
  }

  /**
   * Does the same as `setPublished` for a description that says less than a registry does: a fuller one stays while the
   * image has its digest as a name.
   */
  async describe(id: Digest, published: PublishedImage): Promise<void> {
    const { metadata, configDigest } = this.#entry(id);
    // The document that an image has its ID from stays.
    if (id !== configDigest) return;
    const known = metadata.published?.target.digest;
    if (known === undefined || !this.namesOf(id).some((name) => name.endsWith(`@${known}`)))
      await this.setPublished(id, published);
  }

  /** Remembers durably how a registry has the image. */
  async setPublished(id: Digest, published: PublishedImage): Promise<void> {
    const entry = this.#entry(id);
    if (isDeepStrictEqual(entry.metadata.published, published)) return;
    await this.#describe(entry, (metadata) => ({ ...metadata, published }));
    this.#changed(id);
  }

  async addDigest(reference: string, id: Digest): Promise<void> {
    this.#entry(id);
    const parsed = parseReference(reference);
    const key = `${canonicalName(parsed)}@${parsed.digest ?? id}`;
    if (this.#references.get(key) === id) return;
    const previous = this.#references.get(key);
    await this.#references.change(new Map([[key, id]]));
    this.#changed(id, previous);
  }

  stillNames(reference: string, id: Digest): boolean {
    return this.idOf(reference) === id;
  }

  onChange(listener: () => void): () => void {
    this.#listeners.add(listener);
    return () => void this.#listeners.delete(listener);
  }

  /** Returns the canonical names of an image, tags and digests, in alphabetical order. */
  namesOf(id: Digest): readonly string[] {
    return [...this.#references.of(id)].sort();
  }

  /** Returns the chain IDs of the layers of an image, the lowest first; none for an unknown image. */
  layersOf(id: Digest): readonly Digest[] {
    return chainOf(this.#entries.get(id)?.config.rootfs.diff_ids ?? []);
  }

  /**
   * Returns when the image was last used (named, or by a container), in milliseconds since the epoch; 0: never here.
   */
  lastUsedMs(id: Digest): number {
    return this.#entries.get(id)?.lastUsedMs ?? 0;
  }

  /**
   * Notes a use of the image by a container. The disk gets it at the latest with the next use after a minute, so after
   * a crash the image may seem older by that time.
   */
  used(id: Digest): void {
    const entry = this.#entries.get(id);
    if (!entry) return;
    entry.lastUsedMs = Date.now();
    const saved = Date.parse(entry.metadata.lastUsed ?? '') || 0;
    if (entry.lastUsedMs - saved < SAVE_USE_MS) return;
    // A failure may be ignored, because only the order of a collection depends on it.
    this.#describe(entry, (metadata) => ({ ...metadata, lastUsed: new Date(entry.lastUsedMs).toISOString() })).catch(
      () => undefined,
    );
  }

  /** Returns the images that were made from this one here. */
  childrenOf(id: Digest): readonly Digest[] {
    return this.#children.of(id);
  }

  /** Keeps an image (which need not be here yet) from being removed until the returned function is called. */
  hold(id: Digest): () => void {
    return this.#holds.take(id);
  }

  /** Does so for an image that may be here or not, under each ID that it may get. */
  holdComing(configDigest: Digest, published: PublishedImage | undefined): () => void {
    const ids = published === undefined ? [configDigest] : [configDigest, published.target.digest, published.own];
    const ends = ids.map((id) => this.hold(id));
    return () => ends.forEach((end) => end());
  }

  /** True while someone holds the image. */
  isHeld(id: Digest): boolean {
    return this.#holds.has(id);
  }

  /** Takes names away. The image stays. Idempotent. */
  async untag(keys: readonly string[]): Promise<void> {
    const ids = keys.map((key) => this.#references.get(key));
    await this.#references.change(new Map(keys.map((key) => [key, undefined])));
    this.#changed(...ids);
  }

  /** Deletes an image, its names and the layers that nothing else holds. Returns the deleted layers, top first. */
  async delete(id: Digest): Promise<Digest[]> {
    const entry = this.#entry(id);
    const names = this.namesOf(id);
    if (names.length > 0) await this.untag(names);
    this.#withdraw(entry);
    await entry.saving;
    await this.#content.remove(id);
    const deleted = entry.topLayer === undefined ? [] : await this.#layers.release(entry.topLayer);
    this.#changed();
    return deleted;
  }

  /** Returns the configuration byte for byte. Throws not-found for an unknown image. */
  async configBytes(id: Digest): Promise<Buffer> {
    const entry = this.#entries.get(id);
    const bytes = entry && (await this.#content.read(id, { config: entry.configDigest }));
    if (!bytes) throw notFound(`No such image: ${id}`, { code: 'NO_SUCH_IMAGE' });
    return bytes;
  }

  /** Returns a configuration byte for byte, if an image here has it. */
  async knownConfig(configDigest: Digest): Promise<Buffer | undefined> {
    for (const entry of this.#entries.values())
      if (entry.configDigest === configDigest) return this.#content.read(entry.id, { config: configDigest });
    return undefined;
  }

  #entry(id: Digest): ImageEntry {
    const entry = this.#entries.get(id);
    if (!entry) throw notFound(`No such image: ${id}`, { code: 'NO_SUCH_IMAGE' });
    return entry;
  }

  #imageOf(entry: ImageEntry): Image {
    entry.image ??= imageOf(entry, this.namesOf(entry.id));
    return entry.image;
  }

  /** Tells listeners of a change; the images named here get new values. */
  #changed(...ids: readonly (Digest | undefined)[]): void {
    for (const id of ids) {
      const entry = id && this.#entries.get(id);
      if (entry) entry.image = undefined;
    }
    for (const listener of this.#listeners) listener();
  }
}
