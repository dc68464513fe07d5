/**
 * Removal of what nobody uses when the disk fills up, from a high to a low watermark: blobs of pulled layers, the build
 * cache, both of which can be made again, and then images, the least recently used first.
 */
import { statfs } from 'node:fs/promises';
import { isEngineError, messageOf } from '../errors/engine-error.js';
import type { Image } from '../ports/images.js';
import type { Logger } from '../ports/logger.js';
import type { Digest } from '../ports/storage.js';
import { type RemovalDeps, removeImage } from './removal.js';

export interface GarbageRules {
  /**
   * A collection begins at this use of the data root's file system, in percent (0: never), and goes on down to
   * `lowPercent`.
   */
  readonly highPercent: number;
  readonly lowPercent: number;
  /** Things that were used within this time are kept: an image may be about to get its container. */
  readonly minAgeSeconds: number;
}

export interface GarbageDeps extends RemovalDeps {
  readonly dataRoot: string;
  readonly rules: GarbageRules;
  /** Returns the bytes on the disk of each layer. */
  readonly layerBytes: (chainIds: readonly Digest[]) => Promise<ReadonlyMap<string, number>>;
  /** Removes blobs that are kept besides their layers. Resolves with the number of bytes. */
  readonly dropBlobs: () => Promise<number>;
  /** Removes so many bytes of the build cache, if there are as many, and returns how many came free. */
  readonly pruneCache: (order: { readonly bytes: number; readonly minAgeSeconds: number }) => Promise<number>;
  /** Resolves when the disk has the space of removed layers again. */
  readonly reclaimed: () => Promise<void>;
  readonly log: Logger;
}

const INTERVAL_MS = 60_000;
/** A look follows a change of the images after this time. */
const DELAY_MS = 1_000;

export class ImageGarbage {
  #timer: NodeJS.Timeout | undefined;
  #running: Promise<void> | undefined;
  #stopWatching: (() => void) | undefined;
  #isClosed = false;

  constructor(private readonly deps: GarbageDeps) {}

  /** Looks every minute, and soon after images have changed. Without a high watermark it does nothing. */
  start(): void {
    if (this.deps.rules.highPercent === 0) return;
    this.#stopWatching = this.deps.store.onChange(() => this.#schedule(DELAY_MS));
    this.#schedule(DELAY_MS);
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    this.#stopWatching?.();
    clearTimeout(this.#timer);
    await this.#running;
  }

  #schedule(delayMs: number): void {
    if (this.#isClosed || this.#running) return;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#run(), delayMs).unref();
  }

  #run(): void {
    this.#running = this.#collect()
      .catch((error: unknown) => this.deps.log.error({ err: error }, 'images not collected'))
      .finally(() => {
        this.#running = undefined;
        this.#schedule(INTERVAL_MS);
      });
  }

  async #collect(): Promise<void> {
    const { dataRoot, rules, store, log } = this.deps;
    const { blocks, bfree, bavail, bsize } = await statfs(dataRoot);
    const used = (blocks - bfree) * bsize;
    // This counts as df(1) does: blocks that are reserved for root belong to nobody.
    const size = used + bavail * bsize;
    if (used * 100 < size * rules.highPercent) return;
    let excess = Math.ceil(used - (size * rules.lowPercent) / 100);
    const usedPercent = Math.round((used * 100) / size);
    const spare = await this.deps.dropBlobs();
    if (spare > 0) log.info({ bytes: spare, usedPercent }, 'removed blobs of pulled layers to make room');
    excess -= spare;
    const cached = excess > 0 ? await this.deps.pruneCache({ bytes: excess, minAgeSeconds: rules.minAgeSeconds }) : 0;
    if (cached > 0) log.info({ bytes: cached, usedPercent }, 'removed unused build cache to make room');
    excess -= cached;
    const youngest = Date.now() - rules.minAgeSeconds * 1000;
    const removed: string[] = [];
    for (const image of store.list().toSorted((a, b) => store.lastUsedMs(a.id) - store.lastUsedMs(b.id))) {
      if (excess <= 0 || this.#isClosed) break;
      if (store.lastUsedMs(image.id) > youngest) continue;
      const freed = await this.#remove(image);
      if (freed === undefined) continue;
      removed.push(image.repoTags[0] ?? image.id);
      excess -= freed;
    }
    // The next look would take more, for space that is only late.
    await this.deps.reclaimed();
    if (removed.length > 0) log.info({ removed, usedPercent }, 'removed unused images to make room');
    else if (excess > 0) log.warn({ usedPercent }, 'the disk is above the high watermark, but no image can be removed');
  }

  /** Removes an image. Returns the bytes that came free; undefined when the image stays. */
  async #remove(image: Image): Promise<number | undefined> {
    const { store, users } = this.deps;
    // The removal checks its own rules again; this check only skips images that are plainly in use.
    if (users(image.id).length > 0 || store.childrenOf(image.id).length > 0 || store.isHeld(image.id)) return undefined;
    const bytes = await this.deps.layerBytes(store.layersOf(image.id));
    let freed = 0;
    let isGone = false;
    const names = store.namesOf(image.id);
    for (const name of names.length > 0 ? names : [image.id]) {
      try {
        for (const item of await removeImage(this.deps, name, { force: false, pruneParents: true })) {
          if (!('deleted' in item)) continue;
          isGone = true;
          freed += bytes.get(item.deleted) ?? 0;
        }
      } catch (error) {
        // The image was taken into use, or is gone with another name.
        if (!isEngineError(error, 'conflict') && !isEngineError(error, 'not-found')) throw error;
        this.deps.log.debug({ image: image.id, reason: messageOf(error) }, 'image kept');
      }
    }
    return isGone ? freed : undefined;
  }
}
