/**
 * Knows which image every tag and digest names. It keeps one record on disk, which is replaced as a whole, and reads
 * from memory.
 */
import { readdir, rename, rm } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { isEngineError } from '../errors/engine-error.js';
import type { Digest } from '../ports/storage.js';
import { readRecord, writeRecord } from '../storage/record-store.js';
import { isTemporary } from '../sys/files/durable-file.js';
import type { Urgent } from '../sys/files/reserve.js';
import { isDigest } from './reference.js';

const NONE: ReadonlySet<string> = new Set();

/** Keys are canonical references: `docker.io/library/alpine:3`, `docker.io/library/alpine@sha256:…`. */
export class References {
  readonly #path: string;
  #ids = new Map<string, Digest>();
  #names = new Map<Digest, Set<string>>();
  /** Changes are written one after the other, each together with all changes before it. */
  #last: Promise<unknown> = Promise.resolve();
  /** So many of them are not done yet. */
  #pending = 0;

  constructor(
    root: string,
    /** Runs a write that cannot wait for room on the disk. */
    private readonly urgent: Urgent = (write) => write(),
  ) {
    this.#path = join(root, 'references.json');
  }

  /**
   * Reads the record. If it is damaged, it is renamed and the new path returned: tags are lost then, images are not.
   */
  async load(): Promise<string | undefined> {
    const dir = dirname(this.#path);
    for (const name of await readdir(dir)) if (isTemporary(name)) await rm(join(dir, name), { force: true });
    let record: unknown;
    let aside: string | undefined;
    try {
      record = await readRecord(this.#path);
    } catch (error) {
      if (!isEngineError(error, 'data-loss')) throw error;
      aside = `${this.#path}.damaged-${Date.now()}`;
      await rename(this.#path, aside);
    }
    const entries = Object.entries((record ?? {}) as Record<string, unknown>).filter(
      (entry): entry is [string, Digest] => isDigest(entry[1]),
    );
    this.#replace(new Map(entries));
    return aside;
  }

  get(key: string): Digest | undefined {
    return this.#ids.get(key);
  }

  /** Tells whether names are already what they are to be, and no change that is under way touches any name. */
  has(names: ReadonlyMap<string, Digest>): boolean {
    return this.#pending === 0 && [...names].every(([key, id]) => this.#ids.get(key) === id);
  }

  /** Returns the keys that name an image, in the order in which they were given. */
  of(id: Digest): ReadonlySet<string> {
    return this.#names.get(id) ?? NONE;
  }

  /** Returns the IDs that have a name, for the check at start. */
  ids(): Iterable<Digest> {
    return this.#names.keys();
  }

  /**
   * Changes names durably: a digest sets a name, undefined removes it. Memory changes when the record is on disk, and
   * not at all when that fails. Changes are applied in the order of the calls, each once `ready` resolves. Returns the
   * images that had the names before.
   */
  async change(
    changes: ReadonlyMap<string, Digest | undefined>,
    ready?: Promise<unknown>,
  ): Promise<(Digest | undefined)[]> {
    const apply = async (): Promise<(Digest | undefined)[]> => {
      await ready;
      const next = new Map(this.#ids);
      const before = [...changes.keys()].map((key) => next.get(key));
      for (const [key, id] of changes) {
        if (id === undefined) next.delete(key);
        else next.set(key, id);
      }
      const write = (): Promise<void> => writeRecord(this.#path, Object.fromEntries(next));
      // The removal of a name must not need free space: on a full disk it is what makes room.
      await ([...changes.values()].every((id) => id === undefined) ? this.urgent(write) : write());
      this.#replace(next);
      return before;
    };
    // If `ready` fails, only this change fails, even if it fails before the turn of this change.
    ready?.catch(() => undefined);
    this.#pending++;
    const done = this.#last.then(apply, apply).finally(() => this.#pending--);
    this.#last = done.catch(() => undefined); // the caller hears of it; the next change starts afresh
    return done;
  }

  #replace(ids: Map<string, Digest>): void {
    const names = new Map<Digest, Set<string>>();
    for (const [key, id] of ids) {
      const set = names.get(id);
      if (set) set.add(key);
      else names.set(id, new Set([key]));
    }
    this.#ids = ids;
    this.#names = names;
  }
}
