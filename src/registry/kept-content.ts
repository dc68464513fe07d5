/**
 * Keeps images in the content store of the supervisor as registries have them: documents and compressed layers, byte
 * for byte. A push then sends these. A lease holds what a reference named, an index or a manifest; labels lead from
 * there to the rest. An image works without any of this, so nothing here fails a pull.
 */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { isEngineError, notFound } from '../errors/engine-error.js';
import type { Content, NewBlob } from '../ports/content.js';
import type { ImageSet } from '../ports/image-set.js';
import type { Image, ImageStore } from '../ports/images.js';
import type { Logger } from '../ports/logger.js';
import type { Digest } from '../ports/storage.js';
import { DIFF_ID, labelsOf, REFERENCE } from './content-labels.js';
import { KeptDocuments, type KeptManifest, type KeptTarget } from './kept-documents.js';
import { type KeptDocument, type KeptFacts, type WholeImage, written } from './whole-image.js';
import type { PushedBlob } from './manifest-writer.js';

export interface KeptContentDeps {
  readonly content: Content;
  /** Returns the lease of this data root. */
  readonly lease: () => string;
  readonly images: Pick<ImageStore, 'list' | 'onChange'>;
  readonly log: Logger;
}

/** An image as it was pulled or made. It stays until `close` is called. */
export interface KeptImage extends KeptTarget {
  readonly manifest: KeptManifest;
  /** Returns the bytes of a blob. @throws EngineError not-found. */
  readonly open: (digest: Digest) => AsyncIterable<Buffer>;
  readonly close: () => void;
}

type LayerBlob = Pick<NewBlob, 'digest' | 'sizeBytes'>;

/** So much is sent in one message. */
const READ_BYTES = 256 << 10;
/** Several removals are followed by one collection. */
const COLLECT_DELAY_MS = 1_000;

export class KeptContent {
  readonly #deps: KeptContentDeps;
  readonly #documents: KeptDocuments;
  /** Documents that the lease holds for images. */
  readonly #targets = new Set<Digest>();
  /** Documents that a push needs, with the number of these. */
  readonly #pinned = new Map<Digest, number>();
  #pulls = 0;
  #isPlanned = false;
  #trimming: Promise<void> = Promise.resolve();
  #labelling: Promise<void> = Promise.resolve();

  constructor(deps: KeptContentDeps) {
    this.#deps = deps;
    this.#documents = new KeptDocuments(deps.content);
  }

  /** Lets go of what no image needs, now that the images are known, and from now on when one goes. */
  async load(): Promise<void> {
    const wanted = this.#wanted();
    for (const digest of await this.#deps.content.held(this.#deps.lease()))
      if (wanted.has(digest)) this.#targets.add(digest);
    await this.#trim();
    this.#deps.images.onChange(() => this.#trimSoon());
    // A daemon that was killed may have left what belongs to a platform that it had removed.
    for (const [target, owns] of this.#indexes()) if (owns.size > 0) void this.#dropStale(target);
  }

  /** Lets go of what is kept of the image of a platform that is gone, while others of its index stay. */
  async dropPlatform({ published }: Pick<Image, 'published'>): Promise<void> {
    if (published !== undefined && this.has({ published })) await this.#dropStale(published.target.digest);
  }

  /** Returns the manifests of the images of each index, and those of what is attested of them. */
  #indexes(): ReadonlyMap<Digest, ReadonlySet<Digest>> {
    const found = new Map<Digest, Set<Digest>>();
    for (const image of this.#deps.images.list())
      for (const { published } of image.platforms ?? [image]) {
        if (published === undefined || published.own === published.target.digest) continue;
        const owns = found.get(published.target.digest) ?? new Set();
        if (published.attested) owns.add(published.attested.digest);
        found.set(published.target.digest, owns.add(published.own));
      }
    return found;
  }

  /**
   * Returns how the labels begin by which an index refers to manifests of this data root. Other clients of the
   * supervisor have names of their own for the same, and what these lead to is theirs.
   */
  #entryPrefix(): string {
    return `${REFERENCE}.${this.#deps.lease()}.`;
  }

  #entryLabels(manifests: readonly Digest[]): Record<string, Digest> {
    return Object.fromEntries(manifests.map((digest) => [`${this.#entryPrefix()}${digest.slice(7, 23)}`, digest]));
  }

  /** Takes the labels of an index away that lead to manifests of no image, and lets the supervisor delete these. */
  async #dropStale(target: Digest): Promise<void> {
    const { content } = this.#deps;
    await this.#inTurn(async () => {
      const prefix = this.#entryPrefix();
      const labels = Object.entries(await content.labelsOf(target)).filter(([name]) => name.startsWith(prefix));
      const owns = this.#indexes().get(target);
      const stale = labels.filter(([, digest]) => owns?.has(digest as Digest) !== true).map(([name]) => name);
      if (owns === undefined || stale.length === 0) return;
      await content.unlabel(target, stale);
      await content.collect();
    }).catch((error: unknown) => this.#deps.log.warn({ err: error, target }, 'content of a removed platform is kept'));
  }

  /** Runs changes of labels one after the other. */
  #inTurn(change: () => Promise<void>): Promise<void> {
    const done = this.#labelling.then(change);
    this.#labelling = done.catch(() => undefined);
    return done;
  }

  /** Keeps what belongs to no image yet until the returned function is called. */
  pulling(): () => void {
    this.#pulls++;
    return () => {
      this.#pulls--;
      this.#trimSoon();
    };
  }

  /**
   * Keeps the blob of a layer, if it can. It is in a file that nobody writes to any more, and was found to have this
   * digest. @param diffId of the tar that was found in it.
   */
  async keepLayer(blob: LayerBlob, diffId: Digest, path: string): Promise<void> {
    await this.#attempt(blob.digest, async () => {
      const { size } = await stat(path);
      if (size === blob.sizeBytes) await this.writeLayer(blob, diffId, path);
    });
  }

  /** Does the same, and says when it cannot. @throws EngineError as the supervisor refuses it. */
  async writeLayer({ digest, sizeBytes }: LayerBlob, diffId: Digest, path: string): Promise<void> {
    const { content } = this.#deps;
    const blob = { digest, sizeBytes, labels: { [DIFF_ID]: diffId } };
    await content.offer(digest, path);
    await content.write(this.#deps.lease(), blob, (start) =>
      createReadStream(path, { start, highWaterMark: READ_BYTES }),
    );
  }

  /**
   * Holds the blob of a layer that is kept for an image, until it is let go. Resolves with false when it is there no
   * more, and when nobody has found this tar in it: a manifest may name anything.
   */
  async holdLayer({ digest, sizeBytes }: LayerBlob, diffId: Digest): Promise<boolean> {
    if ((await this.#deps.content.labelsOf(digest))[DIFF_ID] !== diffId) return false;
    try {
      await this.#deps.content.write(this.#deps.lease(), { digest, sizeBytes }, () => {
        throw notFound(`the supervisor does not have ${digest} any more`);
      });
      return true;
    } catch (error) {
      if (isEngineError(error, 'not-found')) return false;
      throw error;
    }
  }

  /**
   * Keeps the documents of an image, and its layers for as long as these. Resolves with what is kept of it; undefined
   * when it cannot be kept.
   */
  async keepImage(image: WholeImage): Promise<KeptFacts | undefined> {
    const { configDigest, configBytes, documents, published, attestation } = image;
    const { target, own } = published;
    const blobs = image.layers.map(({ blob }) => blob.digest);
    const stated = attestation?.manifest.digest;
    // The labels of other images of the same index stay.
    const entries = this.#entryLabels(stated === undefined ? [own] : [own, stated]);
    return this.#attempt(target.digest, async () => {
      await this.#write(configDigest, configBytes, {});
      const attested = attestation && (await this.#keepManifest(attestation.manifest, attestation.blobs));
      const write = async (): Promise<void> => {
        for (const { digest, bytes } of documents.toReversed())
          await this.#write(digest, bytes, digest === own ? labelsOf(configDigest, blobs) : entries);
      };
      await this.#inTurn(write);
      const parts = [own, configDigest, ...blobs];
      const contentBytes = await this.#bytesOf(parts);
      await this.#holdBy(target.digest, [...parts, ...(attested?.parts ?? [])]);
      return { contentBytes, ...(attested && { attested: attested.facts }) };
    });
  }

  /**
   * Keeps the documents of an image that was made here, whose layers are held. All of it stays until `close` is called,
   * and then while there is an image of it. Resolves with what is kept of each platform.
   * @throws EngineError as the supervisor refuses it.
   */
  async keepMade({ platforms, index, descriptor }: ImageSet): Promise<{
    readonly kept: readonly KeptFacts[];
    readonly close: () => void;
  }> {
    const close = this.#pin(descriptor.digest);
    const parts: Digest[] = [];
    const kept: KeptFacts[] = [];
    try {
      for (const { manifest, config, layers, attestation } of platforms) {
        const blobs = layers.map(({ digest }) => digest);
        const own = await this.#keepManifest(written(manifest), [written(config)], blobs);
        const attested =
          attestation && (await this.#keepManifest(written(attestation.manifest), attestation.blobs.map(written)));
        parts.push(...own.parts, ...(attested?.parts ?? []));
        kept.push({ contentBytes: own.facts.contentBytes, ...(attested && { attested: attested.facts }) });
      }
      const entries = this.#entryLabels(index?.manifests.map(({ digest }) => digest) ?? []);
      if (index) await this.#inTurn(() => this.#write(index.descriptor.digest, index.bytes, entries));
      await this.#holdBy(descriptor.digest, parts);
      return { kept, close };
    } catch (error) {
      close();
      throw error;
    }
  }

  /**
   * Keeps a manifest and the documents that it names, the configuration first.
   * @param layers are held already; absent: they are the other documents.
   */
  async #keepManifest(
    { digest, bytes }: KeptDocument,
    documents: readonly KeptDocument[],
    layers?: readonly Digest[],
  ): Promise<{ readonly parts: readonly Digest[]; readonly facts: NonNullable<KeptFacts['attested']> }> {
    for (const document of documents) await this.#write(document.digest, document.bytes, {});
    const [config = digest, ...others] = documents.map((document) => document.digest);
    const named = layers ?? others;
    await this.#write(digest, bytes, labelsOf(config, named));
    const parts = [digest, config, ...named];
    return { parts, facts: { digest, contentBytes: await this.#bytesOf(parts) } };
  }

  /** Lets a document alone hold what its labels lead to. */
  async #holdBy(target: Digest, parts: readonly Digest[]): Promise<void> {
    this.#targets.add(target);
    // Another image that is coming may need a part before its own document is there.
    if (this.#pulls > 1) return;
    const rest = parts.filter((digest) => !this.#targets.has(digest));
    await this.#deps.content.letGo(this.#deps.lease(), rest);
  }

  /** Returns the size of those blobs together that are there. */
  async #bytesOf(digests: readonly Digest[]): Promise<number> {
    const sizes = await Promise.all([...new Set(digests)].map((digest) => this.#deps.content.sizeOf(digest)));
    return sizes.reduce<number>((sum, size) => sum + (size ?? 0), 0);
  }

  /** True when the document is kept that an image came with or got here. */
  has({ published }: Pick<Image, 'published'>): boolean {
    return published !== undefined && this.#targets.has(published.target.digest);
  }

  /** Returns the bytes that are kept of an image; undefined when nothing is. */
  contentBytes(image: Pick<Image, 'published'>): number | undefined {
    return this.has(image) ? image.published?.contentBytes : undefined;
  }

  /** Returns the kept layers of an image, the lowest one first, if all of it is kept. */
  async layersOf(image: Pick<Image, 'published'>): Promise<readonly PushedBlob[] | undefined> {
    const { published } = image;
    if (published === undefined || !this.has(image)) return undefined;
    const type = published.manifests.find(({ digest }) => digest === published.own)?.mediaType;
    return (await this.#documents.manifest(published.own, type))?.layers;
  }

  /** Returns an image, if its manifest and all that this names are kept. */
  async imageOf({
    configDigest,
    published,
  }: Pick<Image, 'configDigest' | 'published'>): Promise<KeptImage | undefined> {
    if (published === undefined || !this.has({ published })) return undefined;
    const { target, manifests, own } = published;
    const close = this.#pin(target.digest);
    const open = (digest: Digest): AsyncIterable<Buffer> => this.open(digest);
    try {
      const manifest = await this.#documents.manifest(own, manifests.find(({ digest }) => digest === own)?.mediaType);
      const document = manifest?.config.digest === configDigest && (await this.#documents.target(published, manifest));
      if (manifest && document) return { manifest, ...document, open, close };
    } catch (error) {
      close();
      throw error;
    }
    close();
    return undefined;
  }

  /** Returns the bytes of a blob. @throws EngineError not-found. */
  open(digest: Digest): AsyncIterable<Buffer> {
    return this.#deps.content.read(digest);
  }

  #pin(digest: Digest): () => void {
    this.#pinned.set(digest, (this.#pinned.get(digest) ?? 0) + 1);
    return () => {
      const left = (this.#pinned.get(digest) ?? 1) - 1;
      if (left > 0) this.#pinned.set(digest, left);
      else this.#pinned.delete(digest);
      this.#trimSoon();
    };
  }

  #write(digest: Digest, bytes: Buffer, labels: Readonly<Record<string, string>>): Promise<void> {
    const blob = { digest, sizeBytes: bytes.length, labels };
    return this.#deps.content.write(this.#deps.lease(), blob, async function* (offset) {
      yield bytes.subarray(offset);
    });
  }

  async #attempt<T>(digest: Digest, work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await work();
    } catch (error) {
      // The file is missing where the disk was too full for it.
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT')
        this.#deps.log.warn({ err: error, digest }, 'not kept as it was pulled');
      return undefined;
    }
  }

  #wanted(): ReadonlySet<Digest> {
    const images = this.#deps.images.list().flatMap(({ published }) => published?.target.digest ?? []);
    return new Set([...images, ...this.#pinned.keys()]);
  }

  #trimSoon(): void {
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    setTimeout(() => {
      this.#isPlanned = false;
      this.#trimming = this.#trimming
        .then(() => this.#trim())
        // The next change, or the next start, does it again.
        .catch((error: unknown) => {
          if (!isEngineError(error, 'unavailable'))
            this.#deps.log.warn({ err: error }, 'content of removed images is still held');
        });
    }, COLLECT_DELAY_MS).unref();
  }

  async #trim(): Promise<void> {
    const { content } = this.#deps;
    const lease = this.#deps.lease();
    const held = await content.held(lease);
    const wanted = this.#wanted();
    const gone = held.filter((digest) => !wanted.has(digest) && (this.#pulls === 0 || this.#targets.has(digest)));
    // A daemon that was killed, or a client that went away, may have ended the write of a blob that nobody wants again.
    const hadUnfinished = this.#pulls === 0 && (await content.letGoUnfinished(lease));
    if (gone.length === 0 && !hadUnfinished) return;
    for (const digest of gone) this.#targets.delete(digest);
    await content.letGo(lease, gone);
    await content.collect();
  }
}
