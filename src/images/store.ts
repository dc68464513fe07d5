/**
 * The image store: configurations on disk, names, and an index in memory from which all reads are served. Layers are
 * the layer store's; an image holds one reference on its top layer.
 */
import { createHash } from 'node:crypto';
import { join } from 'node:path';
import { isDeepStrictEqual } from 'node:util';
import { dataLoss, invalid, notFound, notImplemented } from '../errors/engine-error.js';
import type { DocumentsOf, Image, ImageStore, MadeImageOptions } from '../ports/images.js';
import type { PublishedImage } from '../ports/published-image.js';
import type { Digest, LayerStore } from '../ports/storage.js';
import { chainOf } from '../ports/chain-id.js';
import { KeyedLock } from '../storage/keyed-lock.js';
import type { Urgent } from '../sys/files/reserve.js';
import { parseConfig } from './config-document.js';
import type { ImageMetadata } from './content.js';
import { ImageEntries } from './entries.js';
import { ImageHolds } from './holds.js';
import { identify, type ImageIdentity } from './identity.js';
import type { ImageEntry, ImageOfId } from './image-entry.js';
import { fullId, ImageLookup } from './lookup.js';
import type { MadeManifests, MadeSet } from './made-manifests.js';
import { ImageRecords, type NewRecord } from './records.js';
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
  readonly #records: ImageRecords;
  readonly #references: References;
  readonly #lookup: ImageLookup;
  readonly #entries: ImageEntries;
  readonly #holds = new ImageHolds();
  /** Images of several platforms are written one after the other. */
  readonly #sets = new KeyedLock();
  readonly #listeners = new Set<() => void>();
  #manifests: Pick<MadeManifests, 'make' | 'makeSet'> | undefined;

  /** Keeps everything below `<dataRoot>/image`. */
  constructor(dataRoot: string, layers: LayerStore, { identity = 'config', urgent }: ImageStoreOptions = {}) {
    this.#identity = identity;
    const root = join(dataRoot, 'image');
    this.#references = new References(root, urgent);
    this.#entries = new ImageEntries((id) => this.namesOf(id));
    this.#records = new ImageRecords(root, { layers, entries: this.#entries, urgent });
    this.#lookup = new ImageLookup(this.#references, this.#entries);
  }

  async load(): Promise<{ readonly removed: readonly string[] }> {
    const removed: string[] = [];
    const keys = await this.#records.open();
    const aside = await this.#references.load();
    if (aside !== undefined) removed.push(`damaged image names, put aside as ${aside}`);
    removed.push(...(await this.#records.load(keys, (id) => this.#references.of(id).size > 0)));
    const lost = new Map<string, undefined>();
    for (const id of this.#references.ids()) {
      if (!this.#entries.has(id)) for (const key of this.#references.of(id)) lost.set(key, undefined);
    }
    if (lost.size > 0) await this.#references.change(lost);
    removed.push(...[...lost.keys()].map((key) => `name ${key} of a missing image`));
    return { removed };
  }

  list(): readonly Image[] {
    return [...this.#entries.ids()].flatMap((id) => this.#entries.image(id) ?? []);
  }

  /** Returns the names of the records of all images, including those that are being written. */
  keys(): Digest[] {
    return this.#records.keys();
  }

  get(id: Digest): Image | undefined {
    return this.#entries.image(id);
  }

  /** Returns the image that has or would get this ID, with this configuration, if it is here. */
  find(configDigest: Digest, published: PublishedImage | undefined): Image | undefined {
    const entry = this.#entries.find(this.idFor(configDigest, published), configDigest);
    return entry && this.#entries.imageOf(entry);
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

  async create(configBytes: Buffer, options: NewRecord = {}): Promise<Image> {
    const configDigest: Digest = `sha256:${createHash('sha256').update(configBytes).digest('hex')}`;
    const id = this.idFor(configDigest, options.published);
    const isKnown = this.#entries.find(id, configDigest) !== undefined;
    const entry = await this.#records.create({ id, configDigest }, configBytes, options);
    if (!isKnown) this.#changed();
    return this.#entries.imageOf(entry);
  }

  /** From now on images that are made here get manifests. */
  giveManifests(by: Pick<MadeManifests, 'make' | 'makeSet'>): void {
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

  async createSet(platforms: readonly (readonly Digest[])[], documents: DocumentsOf): Promise<Image> {
    if (!this.#manifests) throw notImplemented('this store keeps one platform of an image', { code: 'ONE_PLATFORM' });
    const { images, close } = await this.#manifests.makeSet(platforms, documents);
    try {
      const id = images[0]?.published.target.digest;
      if (id === undefined) throw invalid('an image is for one platform at least');
      return await this.#sets.run(id, () => this.#createAll(id, images));
    } finally {
      close();
    }
  }

  async #createAll(id: Digest, images: MadeSet['images']): Promise<Image> {
    const letGo = this.hold(id);
    try {
      for (const [at, { config, published }] of [...images.entries()].toReversed())
        await this.create(config, { published, isFurther: at > 0 });
      const image = this.#entries.image(id);
      if (image === undefined) throw dataLoss(`image ${id} has another ID`);
      return image;
    } catch (error) {
      if (this.#entries.has(id) && !this.#entries.hasKey(id)) await this.#records.remove(this.#entries.of(id));
      throw error;
    } finally {
      letGo();
    }
  }

  /** Returns the ID that an image has or would get. */
  idFor(configDigest: Digest, published: PublishedImage | undefined): Digest {
    return identify(this.#identity, configDigest, published);
  }

  async tag(references: string | readonly string[], id: Digest): Promise<void> {
    const entry = this.#entry(id);
    const keys = [references].flat().map((name) => canonicalString(withDefaultTag(parseReference(name))));
    const lastTagTime = new Date().toISOString();
    const told = (metadata: ImageMetadata): ImageMetadata => ({ ...metadata, lastTagTime });
    const changes = new Map(keys.map((key) => [key, id]));
    // A build that finds everything in the cache names the same image again: nobody has to wait for a time.
    if (this.#references.has(changes)) {
      entry.lastUsedMs = Date.now();
      this.#records.note(entry, told);
      return this.#changed(id);
    }
    // The name is written last, because it is what the client is told.
    const previous = await this.#references.change(changes, this.#records.describe(entry, told));
    entry.lastUsedMs = Date.now();
    this.#changed(id, ...previous);
  }

  /** Resolves when nothing waits for being written. */
  close(): Promise<void> {
    return this.#records.writeNoted();
  }

  /** Remembers durably which image this one was made from. */
  async setParent(id: Digest, parent: Digest): Promise<void> {
    await this.#records.describe(this.#entry(id), (metadata) => ({ ...metadata, parent }));
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
      await this.setPublished({ id, configDigest }, published);
  }

  /** Remembers durably how a registry has the image of a platform. */
  async setPublished({ id, configDigest }: ImageOfId, published: PublishedImage): Promise<void> {
    const entry = this.#entry(id, configDigest);
    const known = entry.metadata.published;
    const isSame = known?.own === published.own && known.target.digest === published.target.digest;
    // The image may come once more without what is attested of it, which is still kept.
    const whole = { ...(isSame && known.attested && { attested: known.attested }), ...published };
    if (isDeepStrictEqual(known, whole)) return;
    await this.#records.describe(entry, (metadata) => ({ ...metadata, published: whole }));
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

  /**
   * Returns the chain IDs of the layers of an image, of all its platforms and for each the lowest first; none for an
   * unknown image.
   */
  layersOf(id: Digest): readonly Digest[] {
    return [...new Set(this.#entries.of(id).flatMap(({ config }) => chainOf(config.rootfs.diff_ids)))];
  }

  /**
   * Returns when the image was last used (named, or by a container), in milliseconds since the epoch; 0: never here.
   */
  lastUsedMs(id: Digest): number {
    return Math.max(0, ...this.#entries.of(id).map(({ lastUsedMs }) => lastUsedMs));
  }

  /**
   * Notes a use of the image by a container. The disk gets it at the latest with the next use after a minute, so after
   * a crash the image may seem older by that time.
   */
  used(id: Digest): void {
    const [entry] = this.#entries.of(id);
    if (!entry) return;
    entry.lastUsedMs = Date.now();
    const saved = Date.parse(entry.metadata.lastUsed ?? '') || 0;
    if (entry.lastUsedMs - saved < SAVE_USE_MS) return;
    // A failure may be ignored, because only the order of a collection depends on it.
    this.#records
      .describe(entry, (metadata) => ({ ...metadata, lastUsed: new Date(entry.lastUsedMs).toISOString() }))
      .catch(() => undefined);
  }

  /** Returns the images that were made from this one here. */
  childrenOf(id: Digest): readonly Digest[] {
    return this.#entries.childrenOf(id);
  }

  /** Keeps an image (which need not be here yet) from being removed until the returned function is called. */
  hold(id: Digest): () => void {
    return this.#holds.take(id);
  }

  /** Does so for an image that may be here or not, under the ID that it has or will get. */
  holdComing(configDigest: Digest, published: PublishedImage | undefined): () => void {
    return this.hold(this.idFor(configDigest, published));
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

  /**
   * Deletes an image of all platforms, its names and the layers that nothing else holds. Returns the deleted layers,
   * top first.
   */
  async delete(id: Digest): Promise<Digest[]> {
    this.#entry(id);
    const names = this.namesOf(id);
    if (names.length > 0) await this.untag(names);
    const deleted = await this.#records.remove(this.#entries.of(id));
    this.#changed();
    return deleted;
  }

  /** Deletes the image of one platform; others under its ID stay, with the names. Returns the deleted layers. */
  async deletePlatform({ id, configDigest }: ImageOfId): Promise<Digest[]> {
    const entry = this.#entry(id, configDigest);
    if (this.#entries.of(id).length === 1) return this.delete(id);
    const deleted = await this.#records.remove([entry]);
    this.#changed(id);
    return deleted;
  }

  /** Returns the configuration byte for byte. Throws not-found for an unknown image. */
  async configBytes({ id, configDigest }: ImageOfId): Promise<Buffer> {
    const bytes = await this.#bytesOf(this.#entries.find(id, configDigest));
    if (!bytes) throw notFound(`No such image: ${id}`, { code: 'NO_SUCH_IMAGE' });
    return bytes;
  }

  /** Returns a configuration byte for byte, if an image here has it. */
  async knownConfig(configDigest: Digest): Promise<Buffer | undefined> {
    return this.#bytesOf(this.#entries.withConfig(configDigest));
  }

  async #bytesOf(entry: ImageEntry | undefined): Promise<Buffer | undefined> {
    return entry && this.#records.bytesOf(entry);
  }

  #entry(id: Digest, configDigest?: Digest): ImageEntry {
    const entry = configDigest === undefined ? this.#entries.of(id)[0] : this.#entries.find(id, configDigest);
    if (!entry) throw notFound(`No such image: ${id}`, { code: 'NO_SUCH_IMAGE' });
    return entry;
  }

  /** Tells listeners of a change; the images named here get new values. */
  #changed(...ids: readonly (Digest | undefined)[]): void {
    for (const id of ids) if (id) this.#entries.changed(id);
    for (const listener of this.#listeners) listener();
  }
}
