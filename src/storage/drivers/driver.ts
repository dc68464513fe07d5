/**
 * The contract of storage drivers: how the files of layers are kept, and how a stack of layers becomes the root file
 * system of a container. The store (`src/storage/layers`) does everything else once for all drivers: names and records
 * of layers, references, durability, tars, what a crash left.
 *
 * Store and driver exchange *differences*. A difference is a directory with what one layer adds to the layers below it.
 * A deletion is a character device 0:0 there, and a directory that hides what is below it carries the attribute
 * `trusted.overlay.opaque` (`src/storage/layers/marks.ts`): the form that overlayfs mounts without any change. What
 * becomes of these marks is the driver's strategy. A driver that stacks directories keeps them (*marked*). A driver
 * that copies or snapshots the tree below carries them out: it removes the entries from its copy (*applied*).
 *
 * The life of a layer and of a container, as a driver sees it:
 *
 * 1. At the start the row of the driver (`DriverRow`) is opened; this tries out whether the host can do it. `start`
 *    does what needs the supervisor, and `recover` tells which containers are still mounted from before.
 * 2. A layer arrives. The store unpacks its tar into `<directory>/diff`, a difference, and completes it with what only
 *    the layers below know. `apply` makes of it what the driver wants to keep in that directory. Then the store moves
 *    the directory to its place and writes the record.
 * 3. `directories` tells where the files of a stack of layers are, for everybody who reads them: the store makes tars
 *    and looks up paths there.
 * 4. A container is created: `createWritable` fills its directory. What is below it are the directories of the stack,
 *    and above them an init layer, which is a difference with the mount points that every container needs.
 * 5. It starts: `mount`. Its root file system is at `root` until `unmount`. `mountImage` is for files of an image that
 *    nobody may change.
 * 6. Somebody asks what it changed, how much that is, or commits it: `difference`.
 * 7. Layers and containers end: the store moves them out of their places, and `remove` deletes them in its time.
 *
 * The store never calls two methods for the same container at once, and never passes a layer that may go meanwhile.
 * Every driver passes `test/support/driver-contract`, which includes the end of the process at any moment.
 */
import type { IdMaps, Owner } from '../../ports/id-maps.js';
import type { Logger } from '../../ports/logger.js';
import type { Digest } from '../../ports/storage.js';
import type { WorkerPool } from '../../workers/pool.js';
import type { Layout } from '../layers/layout.js';

/** The facts about the data of a driver that are known without it. */
export interface StoreKind {
  /** Its name in the configuration. Its data are in the directory of this name below the data root. */
  readonly name: string;
  /** Names of what it keeps in its directory besides the shelves of the store. */
  readonly ownPlaces: readonly string[];
  /** For drivers whose files are not all on the device of the data root, or share blocks. For worker threads. */
  readonly counting?: BlockCounting;
}

/** A row of the table of drivers. */
export interface DriverRow extends StoreKind {
  /** Its name for clients. Default: `name`. */
  readonly shownName?: string;
  /** Options of the daemon (`storage-opts`) that it has. */
  readonly options: readonly DriverOption[];
  /** Tells whether a new data root in a directory gets this driver rather than one before it. Default: no. */
  suits?(directory: string): boolean;
  /**
   * Checks options of the daemon against the file system of a directory, before anything is made there. Default: what
   * is wrong with them is wrong on every host.
   * @throws EngineError invalid for options that the driver cannot fulfil there.
   */
  check?(directory: string, storageOpts: readonly string[]): void;
  /** True for one that has `StorageDriver.mapped`, where kernel and file system can do it. */
  readonly showsOwners?: boolean;
  /** True for one that gives the mounts of containers the label of `labelOf`. */
  readonly hasLabels?: boolean;
  /**
   * @throws EngineError unavailable when this host or the file system cannot do it, with the reason; invalid for
   * options that it cannot fulfil.
   */
  open(context: DriverContext): Promise<StorageDriver>;
}

/** Counts the blocks that a walk through a directory of the store does not find. */
export interface BlockCounting {
  /** Called once before a number of `own` below the directory of the store. */
  prepare(root: string): void;
  /** Returns the bytes of a directory of a layer or container that nothing below it has; 0 for any other directory. */
  own(directory: string): number;
  /** Returns a directory whose entries `own` counts for this one, for it may be in another place of the data root. */
  elsewhere?(directory: string): string | undefined;
}

export interface DriverOption {
  readonly name: string;
  readonly value: 'size' | 'any';
  /** Says why the option has no effect, for one that is accepted because it is in many files. */
  readonly idle?: string;
}

export interface DriverContext {
  /** The directories of the store exist. */
  readonly layout: Layout;
  readonly workers: WorkerPool;
  readonly log: Logger;
  /** Options of the daemon, `name=value`; those of other drivers are ignored. */
  readonly storageOpts: readonly string[];
  /** This owner gets directories that no image has. */
  readonly owner: Owner;
  /** Returns the SELinux label that the files of a container get; undefined: none. */
  readonly labelOf: (id: string) => string | undefined;
}

/** Mounts that show the files of images, which stay as they are, as those of a container's own users. */
export interface MappedMounts {
  /** Gives the root directory of a container, as `createWritable` made it in its directory, to these users. */
  own(directory: string, maps: IdMaps): Promise<void>;
  /**
   * As `StorageDriver.mount`. What the container changes is on the disk as its users on the host own it.
   * @throws EngineError unavailable when kernel or file system cannot do it.
   */
  mount(id: string, below: readonly string[], maps: IdMaps, isBrief: boolean): Promise<void>;
  /** As `StorageDriver.mountImage`. */
  mountImage(below: readonly string[], at: string, maps: IdMaps, label?: string): Promise<void>;
}

/** Rows of `DriverStatus` in info. */
export type DriverStatus = readonly (readonly [name: string, value: string])[];

export interface StorageDriver {
  /** As it is now. */
  readonly status: DriverStatus | Promise<DriverStatus>;
  /** Each text names something that the opening or `start` removed or mended. Default: nothing. */
  readonly repaired?: readonly string[];
  /** Each text tells an operator something that these found, with the remedy. Default: nothing. */
  readonly warnings?: readonly string[];
  /**
   * Called once before everything else, when the supervisor has been started. Default: the driver does not need it.
   * @throws EngineError as `DriverRow.open`.
   */
  start?(): Promise<void>;
  /** IDs of the writable layers that are mounted. Called once, when it is known which layers are whole. */
  recover(): Promise<readonly string[]>;
  /**
   * Makes the empty directory that a difference is unpacked into: at `at`, or in another place beside it, which it
   * returns. Default: a plain one. `below` is as for `apply`, but empty if the layer below is not known yet.
   */
  stage?(at: string, below: readonly string[]): Promise<string>;
  /**
   * True if there is less to do for a layer when those below it are whole before it is unpacked, so that `stage` knows
   * them. Layers that are fetched are unpacked one after the other then. Default: the order makes no difference.
   */
  readonly prefersWholeBelow?: boolean;
  /**
   * Makes of the complete difference, which is where `stage` said, what the driver keeps of the layer, in `directory`
   * too. `below` are the directories of the layers below it. A crash leaves the directory to the store, which removes
   * it.
   */
  apply(directory: string, below: readonly string[], chainId: Digest, difference: string): Promise<void>;
  /**
   * Directories that, merged as differences, are the files of a stack of layers. `names` are those of the layers, the
   * topmost first; so is the result, whose first directory has each file that is in the topmost layer's tar.
   */
  directories(names: readonly string[]): string[];
  /**
   * Fills an empty directory, which then becomes the one of a container. Its root has the attributes of the topmost
   * directory of `below`.
   * @throws EngineError invalid for options of the container that the driver or its file system does not have.
   */
  createWritable(
    directory: string,
    below: readonly string[],
    options: Readonly<Record<string, string>>,
    id: string,
  ): Promise<void>;
  /** Where the root file system of a container is while it is mounted. */
  root(id: string): string;
  /** @param isBrief tells that it is mounted only once, and nobody needs its files after an end of the machine. */
  mount(id: string, below: readonly string[], isBrief: boolean): Promise<void>;
  /** Idempotent. */
  unmount(id: string): Promise<void>;
  /** Shows the merged files of `below` in an empty directory, read-only. The caller unmounts it. */
  mountImage(below: readonly string[], at: string, label?: string): Promise<void>;
  /**
   * Returns the difference between a container and what is below it. A driver that keeps none makes it at `scratch`,
   * where nothing is yet and which the store removes. While nothing changes, it is the same each time.
   * @param isShape tells that nobody reads what is in its files; only their sizes have to be right.
   */
  difference(id: string, below: readonly string[], scratch: string, isShape: boolean): Promise<string>;
  /**
   * Tells where the difference of a container is, below its directory, that may become the one of a layer by being
   * moved; undefined when it cannot be moved. Asked for a container that is not mounted any more. Default: none can.
   */
  movableDifference?(directory: string): string | undefined;
  /**
   * Tells the same of a container that is mounted, whose files may be made there directly in a directory that nothing
   * below has. Default: the mount must be used.
   */
  growingDifference?(directory: string): string | undefined;
  /** `GraphDriver.Data` in inspect, of the layer or container whose directory this is. */
  data(directory: string, below: readonly string[]): Readonly<Record<string, string>> | null;
  /** Default: it cannot do that. */
  readonly mapped?: MappedMounts;
  /** Deletes directories that it filled. Idempotent. */
  remove(paths: readonly string[]): Promise<void>;
  /** Containers stay mounted. */
  close(): void | Promise<void>;
}
