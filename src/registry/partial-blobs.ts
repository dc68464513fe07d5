/**
 * Keeps downloads that broke off for the next pull of the same blob, from whatever repository. They survive failures,
 * clients that leave, a killed daemon and a power cut. Age and bytes are limited.
 */
import { readdir, rm, stat, statfs, truncate, utimes } from 'node:fs/promises';
import { join } from 'node:path';
import { type EngineError, isEngineError } from '../errors/engine-error.js';
import type { Digest } from '../ports/storage.js';
import { makeDirectories } from '../sys/files/make-directories.js';

/** The part of a blob that is kept. */
export interface PartialBlob {
  readonly digest: Digest;
  /** Bytes on disk. */
  readonly sizeBytes: number;
  readonly lastUsedMs: number;
  /** True while a transfer is filling it. */
  readonly isActive: boolean;
}

/** The place where a worker keeps a blob that it fetches. Plain data. */
export interface PartialPlace {
  readonly path: string;
  readonly recordPath: string;
}

/** The right to fill one partial blob, until `keep` or `discard` is called. */
export interface PartialClaim {
  readonly place: PartialPlace;
  /** Keeps the bytes for the next attempt. */
  readonly keep: () => void;
  /** Removes the bytes; the claim goes on. */
  readonly reset: () => Promise<void>;
  /** Removes the blob: it is complete elsewhere, or wrong. */
  readonly discard: () => Promise<void>;
}

export interface PartialLimits {
  /** Partial blobs that nobody used for so long are removed. */
  readonly maxAgeMs: number;
  /**
   * Limit of all partial blobs together; undefined: a quarter of the file system, at least 16 GiB. The oldest go first.
   */
  readonly maxBytes?: number;
  /** A smaller blob is not kept, as it is quickly fetched again. Default: 1 MiB. */
  readonly minBytes?: number;
}

const DEFAULT_LIMITS: PartialLimits = { maxAgeMs: 7 * 24 * 3600_000 };
const LEAST_MAX_BYTES = 16 * 2 ** 30;
const FILE_SYSTEM_PART = 1 / 4;
const DEFAULT_MIN_BYTES = 1 << 20;
/** stat(2) counts in these. */
const BLOCK_BYTES = 512;
/** Blocks in which a file system notes where those of the file are count, too. */
const INDEX_BYTES = 64 * 1024;
const SWEEP_INTERVAL_MS = 3600_000;
const HEX = /^[a-f0-9]{64}$/;

export class PartialBlobs {
  readonly #dir: string;
  readonly #limits: PartialLimits;
  readonly #active = new Set<string>();

  /** @param dir `<dataRoot>/image/partial`, with the bytes of a blob as `<hex>` and a record beside them. */
  constructor(dir: string, limits: Partial<PartialLimits> = {}) {
    this.#dir = dir;
    this.#limits = { ...DEFAULT_LIMITS, ...limits };
  }

  /**
   * Makes the directory, removes blobs that are too old or too many, and other files, and gives back the space behind
   * the bytes that a daemon had asked for ahead and was killed.
   */
  async load(): Promise<void> {
    await makeDirectories(this.#dir, { mode: 0o700 });
    const names = await readdir(this.#dir);
    const strange = names.filter(
      (name) => !HEX.test(name) && !(name.endsWith('.json') && names.includes(name.slice(0, -5))),
    );
    await Promise.all(strange.map((name) => rm(join(this.#dir, name), { recursive: true, force: true })));
    await this.trim();
    for (const { digest } of await this.list())
      await giveBackSpace(join(this.#dir, digest.slice(7))).catch(() => undefined); // tried again by the next start
    const sweep = (): void => void this.trim().catch(() => undefined); // tried again in an hour
    setInterval(sweep, SWEEP_INTERVAL_MS).unref();
  }

  /**
   * Claims a blob for one transfer; undefined when another one is filling it, or when it is too small or too large to
   * keep.
   */
  async claim(digest: Digest, sizeBytes: number): Promise<PartialClaim | undefined> {
    const hex = digest.slice(7);
    const { minBytes = DEFAULT_MIN_BYTES } = this.#limits;
    if (sizeBytes < minBytes || this.#active.has(hex)) return undefined;
    this.#active.add(hex);
    // Without the directory nothing can be kept; the pull can do without.
    if (sizeBytes > (await this.#maxBytes().catch(() => 0))) {
      this.#active.delete(hex);
      return undefined;
    }
    return {
      place: { path: join(this.#dir, hex), recordPath: join(this.#dir, `${hex}.json`) },
      keep: () => {
        this.#active.delete(hex);
        void this.trim().catch(() => undefined); // tried again with the next one
      },
      reset: () => this.#remove(hex),
      discard: async () => {
        await this.#remove(hex);
        this.#active.delete(hex);
      },
    };
  }

  /** Returns all partial blobs, the last used first. */
  async list(): Promise<PartialBlob[]> {
    const names = (await readdir(this.#dir)).filter((name) => HEX.test(name));
    const found = await Promise.all(
      names.map(async (hex): Promise<PartialBlob[]> => {
        const stats = await stat(join(this.#dir, hex)).catch(() => undefined); // completed meanwhile
        return stats
          ? [
              {
                digest: `sha256:${hex}`,
                sizeBytes: stats.size,
                lastUsedMs: stats.mtimeMs,
                isActive: this.#active.has(hex),
              },
            ]
          : [];
      }),
    );
    return found.flat().sort((a, b) => b.lastUsedMs - a.lastUsedMs);
  }

  /** Removes all that no transfer is filling. Resolves with the number of bytes. */
  async prune(): Promise<number> {
    return this.#removeWhere(() => true);
  }

  /** Removes what is too old or too much. */
  async trim(): Promise<void> {
    const oldest = Date.now() - this.#limits.maxAgeMs;
    const maxBytes = await this.#maxBytes();
    let bytes = 0;
    await this.#removeWhere(({ lastUsedMs, sizeBytes }) => {
      bytes += sizeBytes;
      return lastUsedMs < oldest || bytes > maxBytes;
    });
  }

  async #removeWhere(isUnwanted: (blob: PartialBlob) => boolean): Promise<number> {
    let bytes = 0;
    for (const blob of await this.list()) {
      // The list was made a moment ago: a transfer may have begun.
      if (!isUnwanted(blob) || this.#active.has(blob.digest.slice(7))) continue;
      await this.#remove(blob.digest.slice(7));
      bytes += blob.sizeBytes;
    }
    return bytes;
  }

  /**
   * Removes a blob. The bytes go first: bytes without a record would be of no use, nor would a record without bytes.
   */
  async #remove(hex: string): Promise<void> {
    await rm(join(this.#dir, hex), { force: true });
    await rm(join(this.#dir, `${hex}.json`), { force: true });
  }

  async #maxBytes(): Promise<number> {
    if (this.#limits.maxBytes !== undefined) return this.#limits.maxBytes;
    const { blocks, bsize } = await statfs(this.#dir);
    return Math.max(LEAST_MAX_BYTES, blocks * bsize * FILE_SYSTEM_PART);
  }
}

/** Frees what a file has on the disk behind its end. Its time stays, which tells when it was used. */
async function giveBackSpace(path: string): Promise<void> {
  const { size, blocks, atime, mtime } = await stat(path);
  if (blocks * BLOCK_BYTES <= size + INDEX_BYTES) return;
  await truncate(path, size);
  await utimes(path, atime, mtime);
}

/**
 * True for bytes that cannot be a layer. They are not worth keeping, unlike bytes after a limit or a trouble of this
 * host.
 */
export function isFaultOfContent(error: unknown): error is EngineError {
  // An error with a status is what a registry said of the request.
  return (
    isEngineError(error) &&
    error.code !== 'LAYER_TOO_LARGE' &&
    error.details['status'] === undefined &&
    (error.kind === 'invalid' || error.kind === 'data-loss')
  );
}
