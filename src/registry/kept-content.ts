/**
 * Keeps pulled images in the content store of the supervisor as registries have them: documents and compressed layers,
 * byte for byte. A push then sends these. A lease holds what a reference named, an index or a manifest; labels lead
 * from there to the rest. An image works without any of this, so nothing here fails a pull.
 */
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { buffer } from 'node:stream/consumers';
import { isEngineError } from '../errors/engine-error.js';
import type { Content, NewBlob } from '../ports/content.js';
import type { Image, ImageStore } from '../ports/images.js';
import type { Logger } from '../ports/logger.js';
import type { PublishedImage } from '../ports/published-image.js';
import type { Digest } from '../ports/storage.js';
import { parseManifest } from './manifest.js';
import type { PushedBlob } from './manifest-writer.js';
import type { ResolvedImage } from './resolve.js';

export interface KeptContentDeps {
  readonly content: Content;
  /** Returns the lease of this data root. */
  readonly lease: () => string;
  readonly images: Pick<ImageStore, 'list' | 'onChange'>;
  readonly log: Logger;
}

/** The manifest of an image as it was pulled. All its layers are kept, until `close` is called. */
export interface KeptManifest {
  readonly bytes: Buffer;
  readonly digest: Digest;
  readonly mediaType: string;
  /** The lowest one first. */
  readonly layers: readonly PushedBlob[];
  readonly close: () => void;
}

/** Labels by which a blob refers to others, for the garbage collection of the supervisor. */
const REFERENCE = 'containerd.io/gc.ref.content';
/** Several removals are followed by one collection. */
const COLLECT_DELAY_MS = 1_000;

export class KeptContent {
  readonly #deps: KeptContentDeps;
  /** Documents that the lease holds for images. */
  readonly #targets = new Set<Digest>();
  /** Documents that a push needs, with the number of these. */
  readonly #pinned = new Map<Digest, number>();
  #pulls = 0;
  #isPlanned = false;
  #trimming: Promise<void> = Promise.resolve();

  constructor(deps: KeptContentDeps) {
    this.#deps = deps;
  }

  /** Lets go of what no image needs, now that the images are known, and from now on when one goes. */
  async load(): Promise<void> {
    const wanted = this.#wanted();
    for (const digest of await this.#deps.content.held(this.#deps.lease()))
      if (wanted.has(digest)) this.#targets.add(digest);
    await this.#trim();
    this.#deps.images.onChange(() => this.#trimSoon());
  }

  /** Keeps what belongs to no image yet until the returned function is called. */
  pulling(): () => void {
    this.#pulls++;
    return () => {
      this.#pulls--;
      this.#trimSoon();
    };
  }

  /** Keeps the blob of a layer, which is in a file. */
  async keepLayer(blob: NewBlob, path: string): Promise<void> {
    await this.#attempt(blob.digest, async () => {
      const { size } = await stat(path);
      if (size === blob.sizeBytes)
        await this.#deps.content.write(this.#deps.lease(), blob, (start) => createReadStream(path, { start }));
    });
  }

  /** Keeps the documents of an image, and its layers for as long as these. */
  async keepImage({ imageId, configBytes, layers, documents, published }: ResolvedImage): Promise<void> {
    const { target, manifests, own } = published;
    const blobs = layers.map(({ blob }) => blob.digest);
    // The labels of other images of the same index stay.
    const position = manifests.findIndex(({ digest }) => digest === own);
    const entry = { [`${REFERENCE}.m.${position}`]: own };
    const manifest = { [`${REFERENCE}.config`]: imageId, ...Object.fromEntries(blobs.map(referenceTo)) };
    await this.#attempt(target.digest, async () => {
      await this.#write(imageId, configBytes, {});
      for (const { digest, bytes } of documents.toReversed())
        await this.#write(digest, bytes, digest === own ? manifest : entry);
      this.#targets.add(target.digest);
      const rest = [imageId, own, ...blobs].filter((digest) => !this.#targets.has(digest));
      await this.#deps.content.letGo(this.#deps.lease(), rest);
    });
  }

  /** Returns the manifest of an image, if that and all its layers are kept. */
  async manifestOf({ id, published }: Pick<Image, 'id' | 'published'>): Promise<KeptManifest | undefined> {
    if (published === undefined || !this.#targets.has(published.target.digest)) return undefined;
    const close = this.#pin(published.target.digest);
    try {
      const found = await this.#find(id, published);
      if (found === undefined) close();
      return found && { ...found, close };
    } catch (error) {
      close();
      throw error;
    }
  }

  async #find(id: Digest, { manifests, own }: PublishedImage): Promise<Omit<KeptManifest, 'close'> | undefined> {
    const { content } = this.#deps;
    const entry = manifests.find(({ digest }) => digest === own);
    if (entry === undefined || (await content.sizeOf(own)) !== entry.size) return undefined;
    const bytes = await buffer(this.open(own));
    const manifest = parseManifest(bytes, entry.mediaType, own);
    if (manifest.kind !== 'image' || manifest.config.digest !== id) return undefined;
    for (const { digest, sizeBytes } of manifest.layers)
      if ((await content.sizeOf(digest)) !== sizeBytes) return undefined;
    return { bytes, digest: own, mediaType: manifest.mediaType, layers: manifest.layers };
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

  async #attempt(digest: Digest, work: () => Promise<void>): Promise<void> {
    try {
      await work();
    } catch (error) {
      // The file is missing where the disk was too full for it.
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return;
      this.#deps.log.warn({ err: error, digest }, 'not kept as it was pulled');
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
    if (gone.length === 0) return;
    for (const digest of gone) this.#targets.delete(digest);
    await content.letGo(lease, gone);
    await content.collect();
  }
}

const referenceTo = (digest: Digest, index: number): [string, Digest] => [`${REFERENCE}.l.${index}`, digest];
