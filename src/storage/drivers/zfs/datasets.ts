/**
 * The datasets of layers and containers, all directly below one dataset of the store. Only what carries the property
 * of this store itself, not by inheritance, is ever destroyed, and never with `-r` or `-R`: what others made of it, by
 * snapshots or clones, stays, and keeps what it stands on.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { conflict, isEngineError, messageOf } from '../../../errors/engine-error.js';
import { randomName } from '../../random-name.js';
import type { ZfsHost } from './host.js';
import { OWN_PROPERTY, SNAPSHOT } from './places.js';

/** A dataset that was mounted is free only when the kernel has ended the processes that used it. */
const BUSY_WAITS_MS = [50, 100, 200, 400, 800];

interface Dataset {
  /** It carries the property of this store. */
  isOwn: boolean;
  /** The dataset whose snapshot it is a clone of, by the last part of its name. */
  origin: string | undefined;
  readonly snapshots: string[];
}

export class Datasets {
  constructor(
    private readonly host: ZfsHost,
    /** The dataset of the store. */
    readonly parent: string,
    /** The value of its property. */
    private readonly store: string,
  ) {}

  /** The full name of a dataset. */
  path(name: string): string {
    return `${this.parent}/${name}`;
  }

  newName(): string {
    return randomName();
  }

  /** Makes an empty dataset, or a clone of a layer's. Nothing is mounted. */
  async make(name: string, below: string | undefined, quotaBytes?: number): Promise<void> {
    const options = ['-o', `${OWN_PROPERTY}=${this.store}`];
    if (quotaBytes !== undefined) options.push('-o', `quota=${quotaBytes}`);
    if (below === undefined) await this.host.zfs('create', ...options, this.path(name));
    else await this.host.zfs('clone', ...options, `${this.path(below)}@${SNAPSHOT}`, this.path(name));
  }

  /** Makes the snapshot of a complete layer. When it returns, the layer is on the disk. */
  async seal(name: string): Promise<void> {
    await this.host.zfs('snapshot', `${this.path(name)}@${SNAPSHOT}`);
  }

  /** Returns what is directly below the dataset of the store, by the last parts of the names. */
  async list(): Promise<Map<string, Dataset>> {
    const columns = ['-o', 'name,property,value,source', `origin,${OWN_PROPERTY}`];
    const text = await this.host.zfs('get', '-Hp', '-d', '2', '-t', 'filesystem,snapshot', ...columns, this.parent);
    const found = new Map<string, Dataset>();
    for (const line of text.split('\n')) {
      const [full = '', property = '', value = '', source = ''] = line.split('\t');
      if (!full.startsWith(`${this.parent}/`)) continue;
      const [name = '', snapshot] = full.slice(this.parent.length + 1).split('@');
      // Somebody has made a dataset below one of ours.
      if (name.includes('/')) continue;
      const dataset = found.get(name) ?? { isOwn: false, origin: undefined, snapshots: [] };
      found.set(name, dataset);
      if (snapshot !== undefined) {
        if (property === 'origin') dataset.snapshots.push(snapshot);
      } else if (property === OWN_PROPERTY) dataset.isOwn = source === 'local' && value === this.store;
      else if (value.startsWith(`${this.parent}/`))
        dataset.origin = value.slice(this.parent.length + 1, value.lastIndexOf('@'));
    }
    return found;
  }

  /** Destroys datasets, clones before what they are clones of. Returns the errors of those that stay, by name. */
  async destroy(names: Iterable<string>): Promise<Map<string, Error>> {
    const errors = new Map<string, Error>();
    const found = await this.list();
    const pending = new Map([...names].flatMap((name) => (found.has(name) ? [[name, found.get(name)] as const] : [])));
    while (pending.size > 0) {
      const origins = new Set([...pending.values()].map((dataset) => dataset?.origin));
      const free = [...pending].filter(([name]) => !origins.has(name));
      await Promise.all(
        free.map(async ([name, dataset]) => {
          pending.delete(name);
          try {
            if (dataset) await this.#destroyOne(name, dataset);
          } catch (error) {
            errors.set(name, error as Error);
          }
        }),
      );
    }
    return errors;
  }

  async #destroyOne(name: string, { isOwn, snapshots }: Dataset): Promise<void> {
    const path = this.path(name);
    if (!isOwn)
      throw conflict(
        `the dataset ${path} stays, because it lacks the property ${OWN_PROPERTY}=${this.store} of its own`,
      );
    const others = snapshots.filter((snapshot) => snapshot !== SNAPSHOT);
    if (others.length > 0) {
      const list = others.map((snapshot) => `${path}@${snapshot}`).join(', ');
      throw conflict(`the dataset ${path} is not used any more, but stays until its snapshots are destroyed: ${list}`);
    }
    // Deferred: with a clone that somebody made, the snapshot goes when that does.
    if (snapshots.includes(SNAPSHOT)) await this.#zfs('destroy', '-d', `${path}@${SNAPSHOT}`);
    await this.#zfs('destroy', path);
  }

  /** Waits while it is busy. What is gone already is no error. */
  async #zfs(...args: readonly string[]): Promise<void> {
    for (const wait of [...BUSY_WAITS_MS, undefined]) {
      try {
        await this.host.zfs(...args);
        return;
      } catch (error) {
        if (isEngineError(error) && error.code === 'ZFS_MISSING') return;
        if (wait === undefined || !isEngineError(error) || error.code !== 'ZFS_BUSY') throw explained(error);
        await sleep(wait);
      }
    }
  }
}

function explained(error: unknown): unknown {
  if (!isEngineError(error) || error.code !== 'ZFS_HAS_CHILDREN') return error;
  return conflict(
    `a dataset is not used any more, but stays until what others made below it or as clones of it is destroyed: ` +
      messageOf(error),
    { cause: error },
  );
}
