/**
 * Keeps the blobs of pulled layers as they came. A push to another registry sends them again, which costs a fraction of
 * compressing the layers, and gives that registry the digests that the image had. A layer works without its blob, so
 * nothing here fails a pull or a push: the bytes are limited, and go with the layer.
 */
import { constants } from 'node:fs';
import { type FileHandle, open, readdir, rename, rm, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import type { ImageStore } from '../ports/images.js';
import type { Digest, LayerStore } from '../ports/storage.js';
import { makeDirectories } from '../sys/files/make-directories.js';

/** The blob of a layer. */
export interface PulledBlob {
  readonly chainId: Digest;
  readonly digest: Digest;
}

export interface PulledBlobsDeps {
  /** `<dataRoot>/image/blobs`, with a file `<chain ID>.<digest>` for each blob; made when missing. */
  readonly dir: string;
  readonly layers: Pick<LayerStore, 'find'>;
  readonly images: Pick<ImageStore, 'onChange'>;
  /** Limit of all blobs together; undefined: a fiftieth of the file system. Those not used for the longest go first. */
  readonly maxBytes?: number;
}

/** A blob that no push has used for so long is removed. */
const MAX_AGE_MS = 7 * 24 * 3600_000;
const FILE_SYSTEM_PART = 1 / 50;
const SWEEP_INTERVAL_MS = 3600_000;
/** Several changes are followed by one look. */
const TRIM_DELAY_MS = 1000;
const NAME = /^([0-9a-f]{64})\.[0-9a-f]{64}$/;

export class PulledBlobs {
  readonly #deps: PulledBlobsDeps;
  #isPlanned = false;
  #removedBytes = 0;
  #removal: Promise<unknown> = Promise.resolve();

  constructor(deps: PulledBlobsDeps) {
    this.#deps = deps;
  }

  /** Bytes of all that was removed since the start of the daemon, whoever has asked for it. */
  get removedBytes(): number {
    return this.#removedBytes;
  }

  /** Removes what no layer needs, once the layers are known, and from now on when one goes. */
  async load(): Promise<void> {
    await makeDirectories(this.#deps.dir, { mode: 0o700 });
    await this.trim();
    this.#deps.images.onChange(() => this.#trimSoon());
    setInterval(() => this.#trimSoon(), SWEEP_INTERVAL_MS).unref();
  }

  /** Takes the file of a complete blob whose digest was checked. It stays where it is if it cannot be kept. */
  async keep(blob: PulledBlob, sizeBytes: number, path: string): Promise<void> {
    try {
      if (sizeBytes > (await this.#maxBytes())) return;
      await rename(path, this.#path(blob));
    } catch {
      // The file is missing where the disk was too full for it, and may be on another file system.
      return;
    }
    this.#trimSoon();
  }

  /** Opens a blob for reading; the caller closes it. Undefined when it is not kept, or not whole. */
  async open(blob: PulledBlob, sizeBytes: number): Promise<FileHandle | undefined> {
    const path = this.#path(blob);
    const file = await open(path, constants.O_RDONLY | constants.O_NOFOLLOW).catch(() => undefined);
    if (file === undefined) return undefined;
    try {
      const { size } = await file.stat();
      if (size === sizeBytes) {
        const now = new Date();
        await file.utimes(now, now);
        return file;
      }
      await this.remove(blob);
    } catch {
      // The layer is compressed then.
    }
    await file.close();
    return undefined;
  }

  /** Removes a blob that turned out to be damaged. */
  async remove(blob: PulledBlob): Promise<void> {
    await rm(this.#path(blob), { force: true });
  }

  /** Removes all of them. Resolves with the number of bytes. */
  async clear(): Promise<number> {
    return this.#removeWhere(() => true);
  }

  /** Removes what belongs to no layer, and what is too old or too much. */
  async trim(): Promise<void> {
    const { layers } = this.#deps;
    const oldest = Date.now() - MAX_AGE_MS;
    const maxBytes = await this.#maxBytes();
    let bytes = 0;
    await this.#removeWhere(({ name, sizeBytes, lastUsedMs }) => {
      const chainHex = NAME.exec(name)?.[1];
      if (chainHex === undefined || lastUsedMs < oldest || !layers.find(`sha256:${chainHex}`)) return true;
      bytes += sizeBytes;
      return bytes > maxBytes;
    });
  }

  /** Removals come one after another, so that each file is counted once. */
  #removeWhere(isUnwanted: (file: KeptFile) => boolean): Promise<number> {
    const removal = this.#removal.then(async () => {
      let bytes = 0;
      for (const file of await this.#list()) {
        if (!isUnwanted(file)) continue;
        await rm(join(this.#deps.dir, file.name), { recursive: true, force: true });
        bytes += file.sizeBytes;
      }
      this.#removedBytes += bytes;
      return bytes;
    });
    this.#removal = removal.catch(() => undefined);
    return removal;
  }

  /** Returns the files, the last used first. */
  async #list(): Promise<KeptFile[]> {
    const { dir } = this.#deps;
    const found: KeptFile[] = [];
    for (const name of await readdir(dir)) {
      const stats = await stat(join(dir, name)).catch(() => undefined); // removed meanwhile
      if (stats) found.push({ name, sizeBytes: stats.size, lastUsedMs: stats.mtimeMs });
    }
    return found.sort((a, b) => b.lastUsedMs - a.lastUsedMs);
  }

  #trimSoon(): void {
    if (this.#isPlanned) return;
    this.#isPlanned = true;
    setTimeout(() => {
      this.#isPlanned = false;
      void this.trim().catch(() => undefined); // tried again with the next change
    }, TRIM_DELAY_MS).unref();
  }

  async #maxBytes(): Promise<number> {
    const { dir, maxBytes } = this.#deps;
    if (maxBytes !== undefined) return maxBytes;
    const { blocks, bsize } = await statfs(dir);
    return blocks * bsize * FILE_SYSTEM_PART;
  }

  #path({ chainId, digest }: PulledBlob): string {
    return join(this.#deps.dir, `${chainId.slice(7)}.${digest.slice(7)}`);
  }
}

interface KeptFile {
  readonly name: string;
  readonly sizeBytes: number;
  readonly lastUsedMs: number;
}
