/** The snapshots that one lease holds. Names that somebody else has taken in the supervisor are left to them. */
import { isEngineError, unavailable } from '../../../errors/engine-error.js';
import type { SnapshotMount, Snapshots } from '../../../ports/snapshots.js';
import { KeyedLock } from '../../keyed-lock.js';
import { randomName } from '../../random-name.js';
import { layerGone } from '../../storage-error.js';

export interface Prepared {
  readonly key: string;
  readonly mounts: readonly SnapshotMount[];
}

export class HeldSnapshots {
  /** Snapshots that the lease holds by our wish. */
  readonly #ours: Set<string>;
  readonly #names = new KeyedLock();

  /** @param holds names of snapshots that the lease holds already. */
  constructor(
    readonly snapshots: Snapshots,
    readonly lease: string,
    holds: readonly string[],
  ) {
    this.#ours = new Set(holds);
  }

  /** Makes an active snapshot. Its key is the name, with something behind it where that is taken. */
  async prepare(name: string, parent?: string): Promise<Prepared> {
    const { snapshots, lease } = this;
    for (let key = name; ; key = besides(name)) {
      const mounts = await this.#take(key, () => whenThere(parent, () => snapshots.prepare(lease, key, parent)));
      if (mounts) return { key, mounts };
    }
  }

  /** Commits an active snapshot, and returns its name: the one that is wanted, with something behind it if taken. */
  async commit(name: string, key: string): Promise<string> {
    const { snapshots, lease } = this;
    for (let free = name; ; free = besides(name)) {
      const isDone = await this.#take(free, async () => (await snapshots.commit(lease, free, key)) || undefined);
      if (isDone) return free;
    }
  }

  mounts(key: string): Promise<readonly SnapshotMount[]> {
    return this.snapshots.mounts(key);
  }

  /** Returns mounts that name the files of a committed snapshot. */
  async look(name: string): Promise<readonly SnapshotMount[]> {
    const key = `view-${randomName()}`;
    try {
      return (await this.snapshots.view(this.lease, key, name)) ?? [];
    } finally {
      await this.letGo([key]);
    }
  }

  /** Lets the lease hold snapshots that are there. */
  async hold(names: readonly string[]): Promise<void> {
    await this.snapshots.hold(this.lease, names);
    for (const name of names) this.#ours.add(name);
  }

  letGo(names: readonly string[]): Promise<void> {
    for (const name of names) this.#ours.delete(name);
    return this.snapshots.letGo(this.lease, names);
  }

  collect(): Promise<void> {
    return this.snapshots.collect();
  }

  /**
   * Takes a name by `work`, which returns undefined when it is taken. From version 1.7 on the supervisor lets the lease
   * hold that name then, so that whoever wanted it may use what is there. That is let go again: the snapshot is
   * somebody else's, who could not remove it otherwise. One at a time per name, so that of two that want the same name
   * the loser knows whether the winner is one of ours.
   */
  #take<T>(name: string, work: () => Promise<T | undefined>): Promise<T | undefined> {
    return this.#names.run(name, async () => {
      const made = await work();
      if (made !== undefined) this.#ours.add(name);
      else if (!this.#ours.has(name)) await this.letGo([name]);
      return made;
    });
  }
}

const besides = (name: string): string => `${name}-${randomName()}`;

/** @throws EngineError data-loss when somebody has removed the snapshot below; unavailable without the snapshotter. */
async function whenThere<T>(parent: string | undefined, work: () => Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (parent !== undefined && isEngineError(error, 'not-found')) throw layerGone(`the snapshot ${parent}`);
    throw error;
  }
}

/** Turns the refusal of a name that the supervisor does not have into one that says so. */
export function withoutSnapshotter(error: unknown, snapshotter: string): unknown {
  if (!isEngineError(error, 'invalid')) return error;
  return unavailable(
    `storage driver ${snapshotter}: ${error.message}: the supervisor has no such snapshotter, or this host cannot ` +
      'run it (`ctr plugins ls` says why)',
    { code: 'NO_SNAPSHOTTER', cause: error },
  );
}
