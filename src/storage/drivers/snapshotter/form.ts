/** The mounts of snapshots tell what kind of files their snapshotter hands out. */
import type { Owner } from '../../../ports/id-maps.js';
import type { SnapshotMount } from '../../../ports/snapshots.js';

/**
 * `differences`: a snapshot has what it adds to the one below, and the kernel's overlay merges them. `trees`: each has
 * all files.
 */
export type FormName = 'differences' | 'trees';

/** Layers and containers do this with the files of snapshots. */
export interface SnapshotForm {
  /** Puts the difference of a layer into its new snapshot. The difference is gone afterwards. */
  fillLayer(layer: NewLayer): Promise<void>;
  /** Returns what `StorageDriver.directories` does, from the files of the layers, the topmost first. */
  directories(files: readonly string[]): string[];
  fillContainer(container: NewContainer): Promise<void>;
  /** Mounts the snapshot of a container. `below`: as in `StorageDriver.mount`. */
  mount(mounts: readonly SnapshotMount[], below: readonly string[], at: string, isBrief: boolean): Promise<void>;
  mountImage(below: readonly string[], at: string): Promise<void>;
  /** As `StorageDriver.difference`, of a container whose files are named. */
  difference(files: string, below: readonly string[], scratch: string, isShape: boolean): Promise<string>;
  close(): void;
}

export interface NewLayer {
  /** Its directory, where something may be mounted meanwhile. */
  readonly directory: string;
  readonly difference: string;
  readonly mounts: readonly SnapshotMount[];
  readonly below: readonly string[];
}

export interface NewContainer {
  readonly mounts: readonly SnapshotMount[];
  /** The lowest first: what lies between the image and the container. */
  readonly differences: readonly string[];
  /** Its root directory has the attributes of this one; undefined: those of `owner`. */
  readonly top: string | undefined;
  /** Files of the image; undefined without one. */
  readonly image: string | undefined;
  readonly owner: Owner;
}

const BINDS = new Set(['bind', 'none']);

/** Returns the directory with the files of a snapshot; undefined when its mounts are of another type. */
export function filesOf(mounts: readonly SnapshotMount[]): string | undefined {
  const [mount] = mounts;
  if (mounts.length !== 1 || !mount) return undefined;
  if (BINDS.has(mount.type)) return mount.source;
  return optionOf(mount, 'upperdir') ?? optionOf(mount, 'lowerdir')?.split(':', 1)[0];
}

/** Returns the form that a snapshot has which stands on another one; undefined when it is none of ours. */
export function formOf(mounts: readonly SnapshotMount[]): FormName | undefined {
  const [mount] = mounts;
  if (mounts.length !== 1 || !mount) return undefined;
  if (BINDS.has(mount.type)) return 'trees';
  return mount.type === 'overlay' && workOf(mounts) !== undefined ? 'differences' : undefined;
}

/** Returns the work directory of an overlay. */
export function workOf([mount]: readonly SnapshotMount[]): string | undefined {
  return mount && optionOf(mount, 'workdir');
}

function optionOf({ type, options }: SnapshotMount, name: string): string | undefined {
  if (type !== 'overlay') return undefined;
  return options.find((option) => option.startsWith(`${name}=`))?.slice(name.length + 1);
}
