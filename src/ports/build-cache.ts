/**
 * Contract of the build cache: what steps of earlier builds made, found by a key of all that the step depends on. Both
 * doors share it. Records are on disk before they are told to anybody.
 */
import type { CachePrune, CacheUsage } from './build.js';
import type { Digest } from './storage.js';

export interface NewCacheRecord {
  /** sha256 in hex of what the step depends on: its parents' keys, its operation and the content that it reads. */
  readonly key: string;
  /** IDs of the records that the step stands on. They stay as long as this one does. */
  readonly parents: readonly string[];
  readonly type: CacheUsage['type'];
  /** Shown by `docker buildx du`, such as `[2/3] COPY f /f`. */
  readonly description: string;
  /** Chain ID of the layer that the step made, with all layers below; undefined: there are no files. */
  readonly layer: Digest | undefined;
  /** The step left the files as they were: `layer` is its parent's. */
  readonly isEmpty: boolean;
  /** Bytes that this record adds to those below. */
  readonly sizeBytes: number;
  /** Time when the step was done, in ms since 1970. Absent: it was done just now. */
  readonly createdAt?: number;
}

/** A record that is in use: neither it nor its layer goes before it is released. */
export interface HeldRecord extends NewCacheRecord {
  readonly id: string;
  readonly createdAt: number;
  release(): Promise<void>;
}

export interface CacheMountOrder {
  /** Name of the directory: the mount's ID with its namespace. */
  readonly id: string;
  /** `shared`: many at a time; `private`: another one when it is in use; `locked`: waits until it is free. */
  readonly sharing: 'shared' | 'private' | 'locked';
  readonly description: string;
  /** Fills a directory that is new. */
  readonly seed?: (directory: string) => Promise<void>;
}

/** A directory that steps keep between builds. It survives a step that fails. */
export interface CacheMount {
  readonly directory: string;
  release(): Promise<void>;
}

/** The directories of a step, in the order in which it named them. */
export interface CacheMounts {
  readonly directories: readonly string[];
  release(): Promise<void>;
}

/** A directory for files of a client. */
export interface SourceDirectory extends CacheMount {
  /** A file for digests of the files in the directory. It is removed with it, and may be missing. */
  readonly digests: string;
  /** @param sizeBytes bytes of its regular files: what is not known has to be counted. */
  release(sizeBytes?: number): Promise<void>;
}

/** Files of clients, of which only those travel again that have changed. */
export interface SourceDirectories {
  /** Opens a directory that nobody else has; a new one when all with this ID are in use. */
  openSource(order: { readonly id: string; readonly description: string }): Promise<SourceDirectory>;
}

export interface KeptDirectoryOrder {
  readonly id: string;
  readonly type: CacheUsage['type'];
  readonly description: string;
}

/** Things fetched from elsewhere, which need not be fetched again. */
export interface KeptDirectories {
  /** Opens the directory with this ID, alone. @throws the signal's reason while it waits. */
  openKept(order: KeptDirectoryOrder, signal: AbortSignal): Promise<CacheMount>;
}

export interface BuildCache {
  /** Returns what the same step made before, and counts its use. */
  find(key: string): Promise<HeldRecord | undefined>;
  /** Keeps what a step has made. The layer needs a reference of the caller until this resolves. */
  add(record: NewCacheRecord): Promise<HeldRecord>;
  /**
   * Opens all that a step wants. Those with one ID are one directory. No two callers wait for each other, in whatever
   * order they name locked directories.
   * @throws the signal's reason while it waits for a locked directory.
   */
  openMounts(orders: readonly CacheMountOrder[], signal: AbortSignal): Promise<CacheMounts>;
  usage(): Promise<readonly CacheUsage[]>;
  prune(selection: CachePrune): Promise<{ readonly removed: readonly CacheUsage[]; readonly reclaimed: number }>;
}
