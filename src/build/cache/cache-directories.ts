/** Directories that builds write to: cache mounts, and the kept files of clients. They survive builds that fail. */
import type { CacheUsage } from '../../ports/build.js';
import type { SourceDirectory } from '../../ports/build-cache.js';
import { KeyedLock } from '../../storage/keyed-lock.js';
import { DirectoryQueue, type Sharing } from './directory-queue.js';
import type { DirectoryShelf } from './directory-shelf.js';
import type { CacheEntry } from './record-index.js';
import { newRecordId, type NewStoredRecord } from './stored-record.js';

type OpenDirectory = Pick<SourceDirectory, 'directory' | 'release'>;

export interface DirectoryOrder {
  readonly id: string;
  readonly type: CacheUsage['type'];
  readonly sharing: Sharing;
  readonly description: string;
  /** Fills a directory that is new. */
  readonly seed?: (directory: string) => Promise<void>;
}

export interface CacheDirectoriesDeps {
  readonly shelf: DirectoryShelf;
  /** Writes a record and makes it known, held once. */
  readonly add: (record: NewStoredRecord) => Promise<CacheEntry>;
  readonly noteUse: (entry: CacheEntry) => void;
  /** Tells that something of an entry is to be saved. */
  readonly changed: (entry: CacheEntry) => void;
}

export class CacheDirectories {
  readonly #deps: CacheDirectoriesDeps;
  readonly #queue = new DirectoryQueue();
  readonly #byName = new Map<string, Set<CacheEntry>>();
  readonly #lock = new KeyedLock();
  readonly #measuring = new Map<CacheEntry, Promise<void>>();

  constructor(deps: CacheDirectoriesDeps) {
    this.#deps = deps;
  }

  /** Makes an entry available that has a directory; others are left alone. */
  adopt(entry: CacheEntry): void {
    const name = entry.record.directoryName;
    if (name === undefined) return;
    this.#byName.set(name, (this.#byName.get(name) ?? new Set()).add(entry));
    // Its size is not known when the daemon was killed during its first use.
    if (entry.sizeBytes === 0) this.#measure(entry);
  }

  /** Nobody gets the directory any more. */
  forget(entry: CacheEntry): void {
    const name = entry.record.directoryName ?? '';
    const entries = this.#byName.get(name);
    entries?.delete(entry);
    if (entries?.size === 0) this.#byName.delete(name);
  }

  /** Resolves when all sizes are known. */
  async settled(): Promise<void> {
    while (this.#measuring.size > 0) await Promise.all(this.#measuring.values());
  }

  /** Opens a directory. @throws the signal's reason while it waits. */
  open(order: DirectoryOrder, signal: AbortSignal): Promise<OpenDirectory> {
    signal.throwIfAborted();
    const name = `${order.type}:${order.id}`;
    const opening = this.#lock
      .run(name, () => this.#find(name, order, signal))
      .then(({ entry }) => entry)
      .then((entry) => this.#mountOf(entry));
    return unlessAborted(opening, signal);
  }

  /** Finds or makes a directory and takes it; the entry of one that is waited for comes later. */
  async #find(
    name: string,
    order: DirectoryOrder,
    signal: AbortSignal,
  ): Promise<{ readonly entry: CacheEntry | Promise<CacheEntry> }> {
    signal.throwIfAborted();
    const present = [...(this.#byName.get(name) ?? [])];
    const taken = this.#queue.take(present, order.sharing);
    if (taken !== undefined) {
      this.#deps.noteUse(taken);
      return { entry: taken };
    }
    if (order.sharing === 'locked' && present.length > 0) {
      const entry = this.#queue.wait(name, signal);
      // The outcome is handled by the one who opens, who may be told of an abort before this.
      entry.then(this.#deps.noteUse, () => undefined);
      return { entry };
    }
    return { entry: await this.#make(name, order) };
  }

  async #make(name: string, { type, description, sharing, seed }: DirectoryOrder): Promise<CacheEntry> {
    const id = newRecordId();
    const { shelf, add } = this.#deps;
    await shelf.make(id, seed);
    let entry: CacheEntry;
    try {
      entry = await add({
        id,
        key: name,
        parents: [],
        type,
        description,
        layer: undefined,
        isEmpty: false,
        sizeBytes: 0,
        directoryName: name,
      });
    } catch (error) {
      await shelf.remove([id]);
      throw error;
    }
    this.#byName.set(name, (this.#byName.get(name) ?? new Set()).add(entry));
    this.#queue.enter(entry, sharing);
    return entry;
  }

  #mountOf(entry: CacheEntry): OpenDirectory {
    let isOpen = true;
    const release = (sizeBytes?: number): Promise<void> => {
      if (isOpen) {
        entry.lastUsedAt = Date.now();
        // A count that is under way may have missed files.
        const isKnown = sizeBytes !== undefined && !this.#measuring.has(entry);
        if (isKnown) entry.sizeBytes = sizeBytes;
        this.#queue.end(entry);
        this.#deps.changed(entry);
        if (!isKnown) this.#measure(entry);
      }
      isOpen = false;
      return Promise.resolve();
    };
    return { directory: this.#deps.shelf.path(entry.id), release };
  }

  /** Measures a directory in the background. A use that ends meanwhile has it measured once more. */
  #measure(entry: CacheEntry): void {
    const before = this.#measuring.get(entry) ?? Promise.resolve();
    const measuring = before
      .then(async () => {
        if (this.#measuring.get(entry) !== measuring) return;
        entry.sizeBytes = await this.#deps.shelf.size(entry.id);
        this.#deps.changed(entry);
      })
      // Builds write to it at this moment, or it is gone: the old size stays until the next use.
      .catch(() => undefined)
      .finally(() => {
        if (this.#measuring.get(entry) === measuring) this.#measuring.delete(entry);
      });
    this.#measuring.set(entry, measuring);
  }
}

/** A directory that comes after the abort is given back. */
function unlessAborted(opening: Promise<OpenDirectory>, signal: AbortSignal): Promise<OpenDirectory> {
  return new Promise((resolve, reject) => {
    const giveUp = (): void => reject(signal.reason as Error);
    signal.addEventListener('abort', giveUp, { once: true });
    opening.then(
      (mount) => {
        signal.removeEventListener('abort', giveUp);
        if (signal.aborted) void mount.release();
        else resolve(mount);
      },
      (error: Error) => {
        signal.removeEventListener('abort', giveUp);
        reject(error);
      },
    );
  });
}
