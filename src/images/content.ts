/** Image configurations on disk, byte for byte, and what the daemon knows about each image beside it. */
import { createHash } from 'node:crypto';
import { readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import type { PublishedImage } from '../ports/published-image.js';
import type { Digest } from '../ports/storage.js';
import { readRecord, removeRecord, writeRecord } from '../storage/record-store.js';
import { isTemporary, replaceFile, syncDirectory } from '../sys/files/durable-file.js';
import { inLanes } from '../text/in-lanes.js';
import { makeDirectories } from '../sys/files/make-directories.js';

/** The daemon knows this about an image beyond its configuration. */
export interface ImageMetadata {
  /** ID of the image that this one was made from here, '' otherwise. */
  readonly parent: string;
  /** RFC 3339, undefined while it never had a tag. */
  readonly lastTagTime: string | undefined;
  /** RFC 3339, of the last use by a container; records of older versions lack it. */
  readonly lastUsed?: string;
  /** Absent for an image that had no manifest yet. */
  readonly published?: PublishedImage;
  /** Digest of the configuration; absent where it is the ID. */
  readonly config?: Digest;
  /** Set where the record of another image of the index is named by the ID: without that this one is no whole image. */
  readonly isFurther?: boolean;
}

const HEX = /^[a-f0-9]{64}$/;
const NO_METADATA: ImageMetadata = { parent: '', lastTagTime: undefined };

/** Stores the bytes in `<root>/content/<hex of the ID>` and a record in `<root>/metadata/<hex of the ID>.json`. */
export class ImageContent {
  readonly #content: string;
  readonly #metadata: string;

  constructor(root: string) {
    this.#content = join(root, 'content');
    this.#metadata = join(root, 'metadata');
  }

  /** Makes the directories and lists the images; files that a crash left half written are removed. */
  async open(): Promise<Digest[]> {
    await makeDirectories(this.#content, { mode: 0o700 });
    await makeDirectories(this.#metadata, { mode: 0o700 });
    const names = await readdir(this.#content);
    const records = await readdir(this.#metadata);
    const known = new Set(names);
    const left = [
      ...names.filter((name) => !HEX.test(name)).map((name) => join(this.#content, name)),
      ...records
        .filter((name) => isTemporary(name) || !known.has(name.replace(/\.json$/, '')))
        .map((name) => join(this.#metadata, name)),
    ];
    await inLanes(left, (path) => rm(path, { force: true }));
    return names.filter((name) => HEX.test(name)).map((name): Digest => `sha256:${name}`);
  }

  /** Returns the bytes; undefined when there are none, or when they have another digest than that of the record. */
  async read(id: Digest, { config = id }: Pick<ImageMetadata, 'config'> = {}): Promise<Buffer | undefined> {
    const bytes = await readFile(join(this.#content, id.slice(7))).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return undefined;
      throw error;
    });
    return bytes && createHash('sha256').update(bytes).digest('hex') === config.slice(7) ? bytes : undefined;
  }

  /** Writes the bytes; durable when the promise resolves. Idempotent. */
  async write(id: Digest, bytes: Buffer): Promise<void> {
    await replaceFile(join(this.#content, id.slice(7)), bytes);
  }

  async readMetadata(id: Digest): Promise<ImageMetadata> {
    const record = (await readRecord(this.#metadataPath(id))) as Partial<ImageMetadata> | undefined;
    return { ...NO_METADATA, ...record };
  }

  async writeMetadata(id: Digest, metadata: ImageMetadata): Promise<void> {
    await writeRecord(this.#metadataPath(id), metadata);
  }

  /** Removes the bytes and the record. Idempotent. */
  async remove(id: Digest): Promise<void> {
    await rm(join(this.#content, id.slice(7)), { force: true });
    await syncDirectory(this.#content);
    await removeRecord(this.#metadataPath(id));
  }

  #metadataPath(id: Digest): string {
    return join(this.#metadata, `${id.slice(7)}.json`);
  }
}
