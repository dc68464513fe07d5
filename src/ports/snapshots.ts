/**
 * Contract of the snapshots of one snapshotter of the supervisor. A snapshot is a tree of files that stands on another
 * one. It is active while it may be written, and committed afterwards. The supervisor deletes, in its time, what no
 * lease holds and nothing stands on; so whoever makes snapshots names a lease.
 */

/** How the files of a snapshot are mounted, as in mount(8). */
export interface SnapshotMount {
  readonly type: string;
  readonly source: string;
  readonly options: readonly string[];
}

export interface Snapshots {
  /** Name of the snapshotter. */
  readonly snapshotter: string;
  /**
   * Makes an active snapshot on a committed one (undefined: on nothing) and lets the lease hold it. Returns its mounts;
   * undefined when the key is taken.
   * @throws EngineError not-found when there is no such parent; invalid when the supervisor lacks the snapshotter.
   */
  prepare(lease: string, key: string, parent?: string): Promise<readonly SnapshotMount[] | undefined>;
  /** As `prepare`, for files that are only read. Its mounts name the files of all that it stands on. */
  view(lease: string, key: string, parent: string): Promise<readonly SnapshotMount[] | undefined>;
  /** Returns the mounts of an active snapshot or a view. @throws EngineError not-found. */
  mounts(key: string): Promise<readonly SnapshotMount[]>;
  /** Commits an active snapshot, which the lease then holds by its new name. Returns false when that name is taken. */
  commit(lease: string, name: string, key: string): Promise<boolean>;
  /** Returns the names of all committed snapshots and the keys of the others. */
  names(): Promise<ReadonlySet<string>>;

  /** Makes a lease without an end; nothing happens when there is one of this name. */
  makeLease(lease: string): Promise<void>;
  /** Returns the names of the snapshots that a lease holds; undefined when there is no such lease. */
  held(lease: string): Promise<readonly string[] | undefined>;
  /** Lets a lease hold snapshots that are there. */
  hold(lease: string, names: readonly string[]): Promise<void>;
  /** Ends that a lease holds these snapshots. Idempotent. */
  letGo(lease: string, names: readonly string[]): Promise<void>;
  /** Deletes all that nothing holds, and resolves when it is gone. */
  collect(): Promise<void>;
}
