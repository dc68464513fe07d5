/**
 * Downloads that broke off, kept for the next pull of the same blob, from whatever repository: through failures,
 * clients that leave, a killed daemon and a power cut. Bounded in age and in bytes.
 */
import { readdir, rm, stat, statfs } from 'node:fs/promises';
import { join } from 'node:path';
import { type EngineError, isEngineError } from '../errors/engine-error.js';
import type { Digest } from '../ports/storage.js';
import { makeDirectories } from '../sys/files/make-directories.js';

/** This is kept for a blob. */
export interface PartialBlob {
  readonly digest: Digest;
  /** On disk. */
  readonly sizeBytes: number;
  readonly lastUsedMs: number;
  /** A transfer is filling it now. */
  readonly isActive: boolean;
}

/** Where a worker keeps a blob that it fetches. Plain data. */
export interface PartialPlace {
  readonly path: string;
  readonly recordPath: string;
}

/** The right to fill one partial blob. Ended by one of its functions. */
export interface PartialClaim {
  readonly place: PartialPlace;
  /** Keeps it for the next attempt. */
  readonly keep: () => void;
  /** Removes what there is; the claim goes on. */
  readonly reset: () => Promise<void>;
  /** Removes it: it is complete elsewhere, or wrong. */
  readonly discard: () => Promise<void>;
}

export interface PartialLimits {
  /** Partial blobs that nobody used for so long are removed. */
  readonly maxAgeMs: number;
  /** All of them together; undefined: a quarter of the file system, at least 16 GiB. The oldest go first. */
  readonly maxBytes?: number;
}

const DEFAULT_LIMITS: PartialLimits = { maxAgeMs: 7 * 24 * 3600_000 };
const LEAST_MAX_BYTES = 16 * 2 ** 30;
const FILE_SYSTEM_PART = 1 / 4;
/** Smaller blobs are fetched again sooner than they are found. */
const MIN_BYTES = 1 << 20;
const SWEEP_INTERVAL_MS = 3600_000;
const HEX = /^[a-f0-9]{64}$/;

export class PartialBlobs {
  readonly #dir: string;
  readonly #limits: PartialLimits;
  readonly #active = new Set<string>();

  /** @param dir `<dataRoot>/image/partial`: the bytes of a blob as `<hex>`, a record beside them. */
  constructor(dir: string, limits: PartialLimits = DEFAULT_LIMITS) {
    this.#dir = dir;
    this.#limits = limits;
  }

  /** Makes the directory, and removes what is too old, too much or no partial blob at all. */
  async load(): Promise<void> {
    await makeDirectories(this.#dir, { mode: 0o700 });
    const names = await readdir(this.#dir);
    const strange = names.filter(
      (name) => !HEX.test(name) && !(name.endsWith('.json') && names.includes(name.slice(0, -5))),
    );
    await Promise.all(strange.map((name) => rm(join(this.#dir, name), { recursive: true, force: true })));
    await this.trim();
    const sweep = (): void => void this.trim().catch(() => undefined); // tried again in an hour
    setInterval(sweep, SWEEP_INTERVAL_MS).unref();
  }

  /** For one transfer; undefined when another one is filling it, or when the blob is too small or too large to keep. */
  async claim(digest: Digest, sizeBytes: number): Promise<PartialClaim | undefined> {
    const hex = digest.slice(7);
    if (sizeBytes < MIN_BYTES || this.#active.has(hex)) return undefined;
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

  /** All of them, the one used last first. */
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

  /** Removes all that no transfer is filling; resolves with their bytes. */
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

  /** The bytes first: without a record they are worth nothing, but without them neither is the record. */
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

/**
 * True for bytes that cannot be a layer, as opposed to limits and to the host's own troubles: they are not worth
 * keeping.
 */
export function isFaultOfContent(error: unknown): error is EngineError {
  // With a status it is what a registry said of the request.
  return (
    isEngineError(error) &&
    error.code !== 'LAYER_TOO_LARGE' &&
    error.details['status'] === undefined &&
    (error.kind === 'invalid' || error.kind === 'data-loss')
  );
}
