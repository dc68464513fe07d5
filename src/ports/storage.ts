/** Contract of the layer store: read-only layers addressed by chain ID, and one writable layer per container. */
import type { Readable } from 'node:stream';
import type { IdMaps } from './id-maps.js';

/** `sha256:<64 hex>`. */
export type Digest = `sha256:${string}`;

export interface LayerInfo {
  readonly chainId: Digest;
  readonly diffId: Digest;
  readonly parent: Digest | undefined;
  /** Bytes of regular files in this layer's difference. */
  readonly sizeBytes: number;
}

/** The kind: 0 modified, 1 added, 2 deleted, as in the Engine API's changes endpoint. */
export interface Change {
  readonly path: string;
  readonly kind: 0 | 1 | 2;
}

/**
 * A directory that is being filled with one layer's difference. It must be committed or discarded; after a crash the
 * next start removes it.
 */
export interface StagedLayer {
  /** Directory that receives the difference, with whiteouts as overlayfs has them. */
  readonly diffDir: string;
  /** File that receives the data needed to rebuild the exact tar later. */
  readonly tarSplitPath: string;
  /** Maps the owners in its tar to this host; undefined: they are the same. */
  readonly idMaps?: IdMaps | undefined;
  /**
   * Makes the layer visible under its chain ID, atomically. If an equal layer was faster, that is a success, too.
   * @param threads are those that filled the directory: what is left to do there is done by them if it is short.
   */
  commit(layer: LayerContent & { readonly parent: Digest | undefined }, threads?: LayerThreads): Promise<LayerInfo>;
  discard(): Promise<void>;
}

/** Worker threads that complete a difference. */
export interface LayerThreads {
  run(task: 'settle-layer', input: UnsettledLayer): Promise<void>;
}

/** The facts about a complete difference, and what has to be done about the layers below it. */
export interface LayerContent {
  readonly diffId: Digest;
  readonly sizeBytes: number;
  /**
   * Directories that no tar entry named: their attributes are taken from the layers below. These and the paths of
   * links are byte strings, one character (up to U+00FF) per byte.
   */
  readonly implicitDirs: readonly string[];
  /**
   * Hard links whose target is not in this layer. They are resolved in the layers below, else an `invalid` error is
   * thrown.
   */
  readonly danglingLinks: readonly { readonly path: string; readonly target: string }[];
  /**
   * Whiteouts that were made. One that hides nothing is removed, because overlayfs would list it in a directory of
   * one layer.
   */
  readonly whiteouts: readonly string[];
}

/** A difference whose relation to the layers below it is not settled yet. */
export interface UnsettledLayer extends Pick<LayerContent, 'implicitDirs' | 'danglingLinks' | 'whiteouts'> {
  readonly diffDir: string;
  /** Difference directories of the parents, the nearest first. */
  readonly lowerDirs: readonly string[];
}

/** A writable layer that is mounted, for somebody who makes its tar while making its files. */
export interface GrowingLayer {
  /** The root of its difference. Files may be made there in directories that nothing below has. */
  readonly upperDir: string;
  /** A file to be created, as of a staged layer. */
  readonly tarSplitPath: string;
  readonly idMaps: IdMaps | undefined;
}

/** The files from which a worker rebuilds a layer's exact tar. The layer stays until `close` is called. */
export interface LayerTar {
  readonly diffDir: string;
  readonly tarSplitPath: string;
  readonly diffId: Digest;
  readonly close: () => void;
}

/** The directories of the store and what is being made in them, by name. */
export interface LayerDirectories {
  readonly layers: readonly { readonly chainId: Digest; readonly name: string }[];
  /** Layers that are in their place, but may not have a record yet. */
  readonly arriving: readonly { readonly chainId: Digest; readonly name: string }[];
  readonly staging: readonly string[];
}

/** About a writable layer for a step of a build. */
export interface BriefOptions {
  /** It has nothing in it but the files below, where a container has mount points and marks that its image lacks. */
  readonly isBare: boolean;
  /** As for a container. */
  readonly maps?: IdMaps | undefined;
}

export interface LayerStore {
  /** Name of the driver as clients see it, such as `overlay2`. */
  readonly driver: string;
  /** Name of the directory of the store below the data root: that of the driver in the configuration. */
  readonly place: string;
  /** Rows of `DriverStatus` in info. */
  driverStatus(): Promise<readonly (readonly [string, string])[]>;
  /** Reads the index from disk, removes what a crash left half made and reports it. */
  load(): Promise<{ readonly removed: readonly string[] }>;
  find(chainId: Digest): LayerInfo | undefined;
  /** Resolves when a crash of the machine loses none of the layers there are: an image may need them then. */
  recorded(): Promise<void>;
  /** Resolves when what was removed until now is deleted, so that the disk has its space again. */
  reclaimed(): Promise<void>;
  /** True if less has to be done for a layer whose layer below is in the store before it is staged. */
  readonly prefersWholeBelow: boolean;
  /** @param parent is the layer that it will be committed on, if that is in the store: some drivers save work then. */
  stage(parent?: Digest): Promise<StagedLayer>;
  /**
   * Takes a reference, which keeps a layer and its parents. References are in memory only; image store and container
   * records take them again at start. `release` deletes layers that nothing references and returns them (top first).
   */
  retain(chainId: Digest): void;
  release(chainId: Digest): Promise<Digest[]>;
  /**
   * Deletes all layers that nothing references. Called at start, when images and containers have taken their
   * references.
   */
  collect(): Promise<Digest[]>;
  /** Rebuilds the layer's exact tar, whose sha256 is its diff ID. */
  tarStream(chainId: Digest): Readable;
  /** Gives the sources of `tarStream` to a worker that does more with the tar. Throws not-found. */
  openTar(chainId: Digest): LayerTar;
  /** Returns the length of that tar. The more files a layer has, the more this reads from the disk. */
  tarSize(chainId: Digest): Promise<number>;
  /** Makes a layer with the same difference on top of other layers. */
  copyLayer(chainId: Digest, parent: Digest | undefined): Promise<LayerInfo>;
  /** Returns `GraphDriver.Data` of an image whose topmost layer this is. */
  layerData(chainId: Digest): Readonly<Record<string, string>> | null;

  /**
   * Creates the writable layer of a container over `parent` (undefined: an empty root). `storageOpt` belongs to the
   * container; `size` limits its bytes. With `maps` it has these users: it sees the files of the image as theirs.
   * Throws invalid for options that the driver or its file system does not have, unavailable for such users.
   */
  createWritable(
    id: string,
    parent: Digest | undefined,
    storageOpt?: Readonly<Record<string, string>>,
    maps?: IdMaps,
  ): Promise<void>;
  /** Returns the users of a container's own; undefined when it has none, or there is no such writable layer. */
  mapsOf(id: string): IdMaps | undefined;
  /**
   * Does the same for a step of a build. It is mounted only once, and what is in it is lost with the machine until it
   * becomes a layer.
   */
  createBrief(id: string, parent: Digest | undefined, options: BriefOptions): Promise<void>;
  /** Mounts a writable layer and returns the merged directory. Each mount needs its unmount. */
  mount(id: string): Promise<string>;
  unmount(id: string): Promise<void>;
  /** Tells where a brief writable layer grows while it is mounted; undefined where the driver hides it. */
  growing(id: string): GrowingLayer | undefined;
  /**
   * Mounts the files of an image, whose topmost layer is given, read-only at an empty directory. The caller keeps a
   * reference as long as it is mounted, and unmounts it. `label`: the SELinux label of its files there; `maps`: the
   * users of a container's own, to whom they are shown.
   */
  mountImage(chainId: Digest, at: string, label?: string, maps?: IdMaps): Promise<void>;
  /** Unmounts and deletes a writable layer. Idempotent. */
  removeWritable(id: string): Promise<void>;
  directories(): LayerDirectories;
  /** Returns the IDs of all writable layers on disk. */
  writableIds(): string[];
  /** Returns the directory where the root file system of a container is while it is mounted. */
  rootOf(id: string): string;
  /** Returns `GraphDriver.Data` of inspect. */
  graphData(id: string): Readonly<Record<string, string>> | null;
  /** Returns the changes of a container, which may be millions, in the order of their paths. */
  changes(id: string): Promise<Iterable<Change>>;
  /** Returns the bytes of regular files in the writable layer. */
  writableSize(id: string): Promise<number>;
  /** Returns the bytes of the layer and all its parents. */
  chainSize(chainId: Digest): number;
  /** Turns the writable layer's difference into a read-only layer over its parent. */
  commitWritable(id: string, signal?: AbortSignal): Promise<LayerInfo>;
  /**
   * Does the same with a writable layer that nobody uses any more, and is faster: its files become those of the new
   * layer. The writable layer is gone afterwards. When this fails, it can only be removed.
   * @param content is known of a layer that was `growing`. Default: it is found by a walk through the files.
   */
  sealWritable(id: string, content?: LayerContent): Promise<LayerInfo>;
}
