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

/** 0 modified, 1 added, 2 deleted, as the Engine API's changes endpoint numbers them. */
export interface Change {
  readonly path: string;
  readonly kind: 0 | 1 | 2;
}

/**
 * A directory being filled with one layer's difference. Either committed or discarded; a crash leaves it to start-up.
 */
export interface StagedLayer {
  /** Directory that receives the difference, with whiteouts as overlayfs has them. */
  readonly diffDir: string;
  /** File that receives the data needed to rebuild the exact tar later. */
  readonly tarSplitPath: string;
  /** Whom the owners in its tar stand for on this host; undefined: themselves. */
  readonly idMaps?: IdMaps | undefined;
  /** Makes the layer visible under its chain ID, atomically. Losing a race to an equal layer is a success. */
  commit(layer: {
    readonly diffId: Digest;
    readonly parent: Digest | undefined;
    readonly sizeBytes: number;
    /**
     * Directories that no tar entry named: their attributes are taken from the layers below. These and the paths of
     * links are byte strings, one character (up to U+00FF) per byte.
     */
    readonly implicitDirs: readonly string[];
    /** Hard links whose target is not in this layer: resolved in the layers below, else an `invalid` error. */
    readonly danglingLinks: readonly { readonly path: string; readonly target: string }[];
    /**
     * Whiteouts that were made. One that hides nothing is taken away: overlayfs would list it in a directory of one
     * layer.
     */
    readonly whiteouts: readonly string[];
  }): Promise<LayerInfo>;
  discard(): Promise<void>;
}

/** What a worker needs to rebuild a layer's exact tar. The layer stays until `close` is called. */
export interface LayerTar {
  readonly diffDir: string;
  readonly tarSplitPath: string;
  readonly diffId: Digest;
  readonly close: () => void;
}

/** What the store has and makes below its directory, by the names of the directories. */
export interface LayerDirectories {
  readonly layers: readonly { readonly chainId: Digest; readonly name: string }[];
  /** Layers that have their place but not for certain a record. */
  readonly arriving: readonly { readonly chainId: Digest; readonly name: string }[];
  readonly staging: readonly string[];
}

export interface LayerStore {
  /**
   * Name of the driver as clients see it, such as `overlay2`. The store is in the directory of this name below the data
   * root.
   */
  readonly driver: string;
  /** Rows of `DriverStatus` in info. */
  readonly driverStatus: readonly (readonly [string, string])[];
  /** Reads the index from disk, removes what a crash left half made and reports it. */
  load(): Promise<{ readonly removed: readonly string[] }>;
  find(chainId: Digest): LayerInfo | undefined;
  stage(): Promise<StagedLayer>;
  /**
   * References keep a layer and its parents. They are in memory only; image store and container records take them
   * again at start. `release` deletes layers that nothing references and returns them (top first).
   */
  retain(chainId: Digest): void;
  release(chainId: Digest): Promise<Digest[]>;
  /**
   * Deletes all layers that nothing references: for start-up, when images and containers have taken their references.
   */
  collect(): Promise<Digest[]>;
  /** Rebuilds the layer's exact tar, whose sha256 is its diff ID. */
  tarStream(chainId: Digest): Readable;
  /** As `tarStream`, for a worker that does more with the tar. Throws not-found. */
  openTar(chainId: Digest): LayerTar;
  /** Bytes of that tar. Reads as much of the disk as the layer has files. */
  tarSize(chainId: Digest): Promise<number>;
  /** Makes the same difference a layer on top of other layers. */
  copyLayer(chainId: Digest, parent: Digest | undefined): Promise<LayerInfo>;
  /** `GraphDriver.Data` of an image whose topmost layer this is. */
  layerData(chainId: Digest): Readonly<Record<string, string>>;

  /**
   * Creates the writable layer of a container over `parent` (undefined: an empty root). `storageOpt` is the
   * container's: `size` limits its bytes. Throws invalid for options that the driver or its file system does not have.
   */
  createWritable(id: string, parent: Digest | undefined, storageOpt?: Readonly<Record<string, string>>): Promise<void>;
  /** Mounts it and returns the merged directory. Counted: each mount needs its unmount. */
  mount(id: string): Promise<string>;
  unmount(id: string): Promise<void>;
  /**
   * Mounts the files of an image, whose topmost layer is given, at an empty directory; nobody can write there. Who does
   * it keeps a reference as long as it is mounted somewhere, and unmounts it.
   */
  mountImage(chainId: Digest, at: string): Promise<void>;
  /** Unmounts and deletes. Idempotent. */
  removeWritable(id: string): Promise<void>;
  directories(): LayerDirectories;
  /** Ids of all writable layers on disk. */
  writableIds(): string[];
  /** Directory where the root file system of a container is while it is mounted. */
  rootOf(id: string): string;
  /** `GraphDriver.Data` of inspect. */
  graphData(id: string): Readonly<Record<string, string>>;
  changes(id: string): Promise<Change[]>;
  /** Bytes of regular files in the writable layer. */
  writableSize(id: string): Promise<number>;
  /** Bytes of the layer and all its parents. */
  chainSize(chainId: Digest): number;
  /** Turns the writable layer's difference into a read-only layer over its parent. */
  commitWritable(id: string): Promise<LayerInfo>;
}
