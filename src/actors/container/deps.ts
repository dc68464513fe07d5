/** The drivers and daemon-wide choices that container actors use. The composition root gives them once. */
import type { VolumePlace } from '../../ports/volume-place.js';
import type { ContainerLog, LogDriver } from '../../ports/logs.js';
import type { ImageStore } from '../../ports/images.js';
import type { IdMaps } from '../../ports/id-maps.js';
import type { LayerStore } from '../../ports/storage.js';
import type { Logger } from '../../ports/logger.js';
import type { NetworkDriver } from '../../ports/network.js';
import type { SpecBuilder } from '../../ports/runtime.js';
import type { ProcessStdio, RuntimeChoice, StdioPaths, TaskService } from '../../ports/supervisor.js';
import type { OwnUsers } from '../../sys/users/own-users.js';
import type { PauseGate } from './life/pause-gate.js';
import type { ContainerRecords } from './records.js';
import type { ContainerRecord } from './container.record.js';

export interface StdioFactory {
  create(options: {
    readonly dir: string;
    readonly stdin: boolean;
    readonly stdout: boolean;
    readonly stderr: boolean;
    readonly terminal: boolean;
    /** The content of the FIFOs is kept while the daemon is away, also when the process ends meanwhile. */
    readonly isKept?: boolean;
  }): Promise<ProcessStdio>;
  /** Opens the FIFOs of a process that went on without the daemon; they are kept further. */
  reopen(paths: StdioPaths): Promise<ProcessStdio>;
  /** Opens the FIFOs of a process that ended without the daemon: the streams end behind what it left there. */
  reopenEnded(paths: StdioPaths): Promise<ProcessStdio>;
}

/** The paths of the files that the daemon keeps for a container and mounts into it. */
export interface ContainerFiles {
  readonly hostname: string;
  readonly hosts: string;
  readonly resolvConf: string;
}

/** These files, as they were written. */
export interface WrittenFiles {
  readonly files: ContainerFiles;
  /** By path; empty when they are another container's. */
  readonly texts: ReadonlyMap<string, string>;
}

/** The network operations of a container: it joins all of its networks at a start, joins one, or leaves all. */
export type NetworkAction = 'allocate' | 'connect' | 'release';

export interface ContainerDeps {
  /** Runs an action on networks, and has it counted when it succeeds. */
  readonly counted: <T>(action: NetworkAction, run: () => Promise<T>) => Promise<T>;
  readonly log: Logger;
  readonly records: ContainerRecords;
  readonly pauseGate: PauseGate;
  readonly images: ImageStore;
  readonly layers: LayerStore;
  readonly network: NetworkDriver;
  readonly logs: LogDriver;
  readonly tasks: TaskService;
  readonly stdio: StdioFactory;
  readonly specs: SpecBuilder;
  /** Directory below which each container has its FIFOs. */
  readonly ioRoot: string;
  /** Directory for mounts of subpaths of volumes while containers are being started. */
  readonly placesRoot: string;
  /** Maps users of containers whose files have other owners on the disk; undefined: they are the host's. */
  readonly idMaps: IdMaps | undefined;
  /** Users of containers that are made and ask for no others; undefined: those of `idMaps`, else the host's. */
  readonly shownMaps: IdMaps | undefined;
  /** Gives containers users of their own: those that want some, or all that do not say otherwise. */
  readonly ownUsers: OwnUsers;
  readonly givesOwnUsers: boolean;
  /** Directory in which root file systems are shown to runtimes that act as the users of a container's own. */
  readonly rootsRoot: string;
  /** Directory for the /dev/shm of containers that share theirs. */
  readonly shmRoot: string;
  runtimeFor(record: ContainerRecord): RuntimeChoice;
  cgroupsPathFor(record: ContainerRecord): string;
  /** Host path of the init binary for containers that run under one. */
  initPathFor(record: ContainerRecord): string | undefined;
  /** Returns the published record of another container, whose namespaces this one may join. */
  find(id: string): ContainerRecord | undefined;
  /** Lets go of the layers and the labels of a container. Idempotent. */
  releaseHolds(id: string): Promise<void>;
  /** Gives a tree of files a SELinux label; undefined when containers have no labels. */
  readonly relabel: ((path: string, label: string) => Promise<void>) | undefined;
  /**
   * Writes the three files; endpoints may still be unknown, the next call replaces the contents in place.
   * @param before what they are, when nobody has had them since: those that stay the same are not written.
   */
  writeFiles(record: ContainerRecord, before?: WrittenFiles): Promise<WrittenFiles>;
  emit(
    type: 'container' | 'network' | 'volume',
    action: string,
    id: string,
    attributes: Readonly<Record<string, string>>,
  ): void;
  /** Resolves when the events so far are on disk, or the disk has not taken them. */
  eventsWritten(): Promise<void>;
  readonly volumes: VolumeService;
  /** Returns the ids of the containers that have a volume. */
  volumeUsers(name: string): readonly string[];
}

export interface VolumeService {
  /** Creates (or finds) a volume and returns its host directory. */
  ensure(volume: {
    readonly name: string;
    readonly anonymous: boolean;
    readonly driver?: string;
    readonly options?: Readonly<Record<string, string>>;
    readonly labels?: Readonly<Record<string, string>>;
    readonly pinned?: boolean;
  }): Promise<{
    readonly driver: string;
    readonly options: Readonly<Record<string, string>> | null;
    readonly mountpoint: string;
    readonly created: boolean;
  }>;
  /** Lets a volume that was pinned by `ensure` be removed again. */
  unpin(name: string): void;
  /**
   * Makes the files of a volume available and says where they are. If its options name a file system, that is mounted
   * until each user has closed the volume.
   */
  open(name: string, user: string): Promise<VolumePlace>;
  /** Does the same as `open` for a container that outlived a daemon. */
  adopt(name: string, user: string): Promise<void>;
  closeUse(name: string, user: string): Promise<void>;
  /**
   * Makes `target`, whose directory must exist, and shows there what is at a subpath ('' for all) of an open volume.
   * Nobody can exchange it any more. With `maps` its files are those of the users of a container's own.
   * @throws EngineError not-found, invalid for a subpath, unavailable for such users.
   */
  show(place: VolumePlace, subpath: string, target: string, maps?: IdMaps): Promise<void>;
  /**
   * Copies the files that the image has at `destination` into an empty volume, or into an empty directory of it, and
   * keeps their attributes. Links stay inside `rootfs`.
   */
  populate(
    place: VolumePlace,
    subpath: string,
    source: { readonly rootfs: string; readonly destination: string },
  ): Promise<void>;
  /** Returns true for a volume that got its name from the daemon. */
  isAnonymous(name: string): boolean;
  /** Removes a volume and returns the name of its driver. */
  remove(name: string): Promise<string>;
}

export type { ContainerLog };
