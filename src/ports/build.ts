/**
 * Contract of the build engine: what a door (the classic `POST /build`, or the services of BuildKit) hands to it, and
 * what it hears. Doors translate and do nothing else, so a Dockerfile gives the same files whichever door it came by.
 */
import type { DockerfileToBuild } from './build-dockerfile.js';
import type { Ulimit } from './container.js';
import type { ImageSet, LeavingLayer } from './image-set.js';
import type { ImageConfigDocument } from './images.js';
import type { Digest } from './storage.js';

export interface BuildRequest {
  /** Name of the build while it runs: BuildKit's reference, the classic build ID, or a random one. */
  readonly id: string;
  readonly dockerfile: DockerfileToBuild;
  /** The main context. It is asked only when a step needs it. */
  readonly context: BuildContext;
  /** Contexts by name, in lower case. They stand for images of the same name, and stages may be based on them. */
  readonly namedContexts: ReadonlyMap<string, NamedContext>;
  /** Name or index of the stage to build; empty means the last one. */
  readonly target: string;
  /** undefined: the argument is mentioned without a value, so it has none. */
  readonly buildArgs: ReadonlyMap<string, string | undefined>;
  readonly labels: ReadonlyMap<string, string>;
  /** Such as `linux/amd64`; empty means the host's. */
  readonly platforms: readonly string[];
  /** Names of stages in lower case whose steps take nothing from the cache. */
  readonly noCache: 'all' | readonly string[] | undefined;
  /** Asks the registry for base images, also when they are here. */
  readonly pull: boolean;
  readonly run: RunSettings;
  /** Set for the classic builder: every step leaves an image, and RUN a container. */
  readonly classic?: ClassicSettings;
  readonly cacheFrom: readonly CacheSource[];
  /** The configuration of the image gets the cache of its own steps. */
  readonly inlineCache: boolean;
  readonly cacheTo: readonly CacheExport[];
  /** Has a program list what is in the results. */
  readonly scan?: ScanOrder;
  readonly outputs: readonly BuildOutput[];
  /** Asked when a step that is not cached needs the secret. undefined: there is none with this name. */
  readonly secret: (id: string) => Promise<Buffer | undefined>;
  /** Makes a connection to the client's agent; throws when the client has none with this name. */
  readonly sshAgent: (id: string) => Promise<SshAgent>;
  /** Returns what the client gives for a registry, such as `docker.io`. */
  readonly credentials: (registryHost: string) => Promise<BuildCredentials | undefined>;
  readonly observer: BuildObserver;
}

/** A program that looks into the files of a result, by BuildKit's protocol for scanners. */
export interface ScanOrder {
  /** The image with the program, such as `docker.io/docker/buildkit-syft-scanner:stable-1`. */
  readonly generator: string;
  /** The program gets each as a variable whose name begins with `BUILDKIT_SCAN_`. */
  readonly parameters: ReadonlyMap<string, string>;
}

/** Settings of all RUN steps. */
export interface RunSettings {
  /** Empty, `default`, `none`, `host`; the classic builder also has names of networks and `container:ID`. */
  readonly networkMode: string;
  /** `name:address`, as in a container's configuration. */
  readonly extraHosts: readonly string[];
  /** 0 means the default. */
  readonly shmSize: number;
  readonly ulimits: readonly Ulimit[];
  readonly cgroupParent: string;
  readonly hostname: string;
  readonly memory: number;
  readonly memorySwap: number;
  readonly cpuShares: number;
  readonly cpuPeriod: number;
  readonly cpuQuota: number;
  readonly cpusetCpus: string;
  readonly cpusetMems: string;
  /** `network.host`, `security.insecure`: what the client has granted and the configuration allows. */
  readonly entitlements: readonly string[];
}

export interface ClassicSettings {
  /** Removes the container of a RUN that has succeeded. */
  readonly removeContainers: boolean;
  /** Removes it also when it has failed. */
  readonly forceRemove: boolean;
  /** Puts all that was made over the base image into one layer. */
  readonly squash: boolean;
}

export interface BuildCredentials {
  readonly username?: string;
  readonly password?: string;
  readonly identityToken?: string;
  readonly registryToken?: string;
  readonly serverAddress?: string;
}

/** A way to the client's agent, as a socket on this host that RUN steps mount. */
export interface SshAgent {
  readonly socketPath: string;
  close(): Promise<void>;
}

/** Where records of earlier builds are found. The type is `registry`, `local`, or `image` (the classic builder). */
export interface CacheSource {
  readonly type: string;
  readonly attributes: ReadonlyMap<string, string>;
  /** Set for `local`: where the client has the cache. */
  readonly content?: ContentSource;
}

/** Blobs of a client's. */
export interface ContentSource {
  /** Yields the bytes of a blob, which need not be those of its digest. @throws EngineError not-found */
  read(digest: Digest, signal: AbortSignal): AsyncIterable<Uint8Array>;
}

/** A place to which a build's steps go, for builds of other engines. */
export interface CacheExport {
  /** `min`: the steps whose layers the result has; `max`: all. */
  readonly mode: 'min' | 'max';
  /** Called after the outputs. The layers are held as long as it runs. */
  readonly take: (steps: readonly CachedStep[]) => Promise<void>;
}

/** A step that another build need not do again. */
export interface CachedStep {
  /** sha256 in hex of all that it depends on. */
  readonly key: string;
  /** Chain IDs of its layers, the lowest first. */
  readonly layers: readonly Digest[];
  /** ms since 1970. */
  readonly createdAt: number;
}

export type NamedContext =
  | { readonly kind: 'image'; readonly reference: string }
  | { readonly kind: 'tree'; readonly context: BuildContext }
  /** A git repository or an address whose content is fetched by this daemon. */
  | { readonly kind: 'remote'; readonly url: string }
  /** An image in a directory of the client's. */
  | { readonly kind: 'layout'; readonly content: ContentSource; readonly digest: Digest; readonly shown: string }
  /** The result of a build that has not ended, or has ended and is held. */
  | { readonly kind: 'result'; readonly result: PlatformResult };

/** A part of a context that is wanted. */
export interface TreeSelection {
  /** Patterns of the ignore file, as they were written, without its comments. */
  readonly ignore: readonly string[];
  /** Paths and patterns of the sources that steps read; empty means everything. */
  readonly follow: readonly string[];
}

/** Hears how many bytes have come from a client so far. */
export type CountBytes = (total: number) => void;

/** Files of a client's. */
export interface BuildContext {
  /** One small file, such as the ignore file. undefined: there is none. */
  readFile(path: string, bytes?: CountBytes): Promise<Buffer | undefined>;
  /**
   * Brings files to this host. More than was asked for may come, and the ignore patterns need not have been applied:
   * the engine applies them itself. Bytes are counted when they come only now, and not for files that are here.
   */
  tree(selection: TreeSelection, signal: AbortSignal, bytes?: CountBytes): Promise<ContextTree>;
}

/** A directory of files with owners and times as the client sent them. It does not change until it is released. */
export interface ContextTree {
  readonly directory: string;
  /** A file for digests of its files, when it stays between builds and nobody else changes it. */
  readonly digests?: string;
  release(): Promise<void>;
}

/** The use of the result. */
export type BuildOutput =
  /**
   * An image in the store, with these names in their familiar form, maybe none. `named` is called when it has them.
   * Later times of the files that were made become `epoch`, in seconds since 1970. With `documents` the image gets
   * these, and without them it is one of a single platform.
   */
  | {
      readonly kind: 'image';
      readonly names: readonly string[];
      readonly named?: () => Promise<void>;
      readonly epoch?: number;
      readonly documents?: (
        results: readonly PlatformResult[],
        layers: readonly (readonly LeavingLayer[])[],
      ) => Promise<ImageSet>;
    }
  /** The door reads the files of the result itself, and gets them by this call before the build ends. */
  | {
      readonly kind: 'files';
      /**
       * @param together has the files of all results: it is the directory of the only one, or has one for each, with
       * the platform for its name (`linux_arm64`).
       */
      readonly take: (results: readonly ResultFiles[], together: string) => Promise<void>;
    }
  /** The door makes an image of the result itself. The layers are held as long as `take` runs. */
  | { readonly kind: 'result'; readonly take: (results: readonly PlatformResult[]) => Promise<void> };

/** The files of a result, at a directory that is mounted read-only as long as `take` runs. */
export interface ResultFiles extends AttestedResult {
  readonly directory: string;
}

/** All that is told of a result besides its files. */
export interface AttestedResult {
  readonly platform: string;
  /** Those of the scan that was ordered, the one about the result itself first. */
  readonly scanned: readonly ScannedStatement[];
  /** Tells how it was made. */
  recipe(): BuildRecipe;
}

/** A statement of the program that was to look into a result. */
export interface ScannedStatement {
  /** The name that the program has given its file, such as `sbom.spdx.json`. */
  readonly name: string;
  readonly predicateType: string;
  readonly predicate: JsonFile;
}

/** A file that has one value in JSON, and is there until the build ends. */
export interface JsonFile {
  readonly path: string;
  readonly sizeBytes: number;
}

/** The result for one platform. */
export interface PlatformResult extends AttestedResult {
  readonly config: ImageConfigDocument;
  /** undefined: there are no files. */
  readonly topLayer: Digest | undefined;
  /** So many of the layers, from the lowest, are those of the image that the build began with. */
  readonly baseLayers: number;
}

/** How a result was made. */
export interface BuildRecipe {
  readonly materials: readonly BuildMaterial[];
  /** Each after those that it needs. */
  readonly steps: readonly RecipeStep[];
  /** Those that RUN steps were given. */
  readonly secrets: readonly RecipeGift[];
  readonly ssh: readonly RecipeGift[];
}

/** Something from elsewhere that a result has in it. */
export interface BuildMaterial {
  /** An address, or the package URL of an image. */
  readonly uri: string;
  /** Hex digits by the name of the algorithm, such as `sha256`. */
  readonly digest: Readonly<Record<string, string>>;
}

export interface RecipeStep {
  /** In the form of the definitions of BuildKit, with their names of members. */
  readonly operation: object;
  /** Places among the steps. */
  readonly inputs: readonly number[];
  /** Lines of the Dockerfile, counted from 1. */
  readonly lines: { readonly start: number; readonly end: number } | undefined;
}

/** A secret or an agent, by its name. */
export interface RecipeGift {
  readonly id: string;
  readonly optional?: boolean;
}

export interface BuildResult {
  readonly platforms: readonly PlatformResult[];
  /** ID of the image; undefined when no output made one. */
  readonly imageId: Digest | undefined;
  /** The ID is the digest of an index. */
  readonly isIndex?: boolean;
  /** Build arguments of the request that no instruction used. */
  readonly unusedArgs: readonly string[];
  /** Gives the layers of the platforms up, which stay until then. Idempotent. */
  release(): Promise<void>;
}

/** A build that runs. `result` rejects with an EngineError, a `BuildFailure` where a step or a line is to blame. */
export interface RunningBuild {
  readonly id: string;
  readonly result: Promise<BuildResult>;
  /** Ends all steps; `result` rejects with `context canceled`. */
  cancel(): void;
}

export interface BuildEngine {
  start(request: BuildRequest): RunningBuild;
  /** Cancels the build with this ID; an unknown one is no error. */
  cancel(id: string): void;
  /** Describes what is kept of earlier builds. */
  cacheUsage(): Promise<readonly CacheUsage[]>;
  pruneCache(selection: CachePrune): Promise<{ readonly removed: readonly CacheUsage[]; readonly reclaimed: number }>;
}

/** A record of the cache, as clients see it. Times are in ms since 1970. */
export interface CacheUsage {
  readonly id: string;
  readonly parents: readonly string[];
  readonly type: 'regular' | 'internal' | 'frontend' | 'source.local' | 'source.git.checkout' | 'exec.cachemount';
  readonly description: string;
  readonly inUse: boolean;
  /** Its files belong to an image, too. */
  readonly shared: boolean;
  readonly size: number;
  readonly createdAt: number;
  readonly lastUsedAt: number | undefined;
  readonly usageCount: number;
}

/** Limits in bytes; 0 means none. */
export interface CachePrune {
  readonly all: boolean;
  readonly keepDurationMs: number;
  readonly reservedSpace: number;
  readonly maxUsedSpace: number;
  readonly minFreeSpace: number;
  readonly selects: (record: CacheUsage) => boolean;
}

/** Facts about a failure that clients show besides its message. They are in the details of the EngineError. */
export interface BuildFailureFacts {
  /** Exit code of the process of a RUN. */
  readonly exitCode?: number;
  /** Digest of the vertex that failed. */
  readonly vertex?: string;
  /** Lines of the Dockerfile, counted from 1; both are part of it. */
  readonly lines?: { readonly start: number; readonly end: number };
}

/**
 * Hears what happens, at once and without waiting; each door makes its own form of it. An observer must not throw.
 */
export interface BuildObserver {
  /** Something of a vertex is new or has changed. */
  vertex(vertex: BuildVertex): void;
  status(status: BuildStatus): void;
  /** Output of a vertex; 1 is standard output, 2 the other one. The bytes stay as they are. */
  log(vertex: string, stream: 1 | 2, bytes: Buffer): void;
  warning(warning: BuildWarning): void;
  /** It is known what will be built, for these platforms, and no step has begun. */
  planned?(platforms: readonly string[]): void;
  /** Resolves when more output may come; a RUN waits for it. Absent: at any time. */
  ready?(): Promise<void>;
  /** Steps in the words of the classic builder, only with `classic` settings. */
  classic(event: ClassicEvent): void;
}

/** Times are in ms since 1970. */
export interface BuildVertex {
  readonly digest: string;
  readonly inputs: readonly string[];
  readonly name: string;
  readonly cached: boolean;
  readonly started?: number;
  readonly completed?: number;
  readonly error?: string;
}

export interface BuildStatus {
  readonly id: string;
  readonly vertex: string;
  readonly name: string;
  readonly current: number;
  readonly total: number;
  readonly started?: number;
  readonly completed?: number;
}

export interface BuildWarning {
  readonly vertex: string;
  readonly level: number;
  readonly short: string;
  readonly detail: readonly string[];
  readonly url: string;
  readonly ranges: readonly { readonly start: number; readonly end: number }[];
}

export type ClassicEvent =
  | { readonly kind: 'text'; readonly text: string }
  | { readonly kind: 'output'; readonly stream: 1 | 2; readonly bytes: Buffer }
  /** Bytes of an address; a total of -1 is not known, and one that is absent is not told. */
  | {
      readonly kind: 'download';
      readonly status: string;
      readonly id?: string;
      readonly current: number;
      readonly total?: number;
    }
  /** A line of a pull's progress, rendered. */
  | { readonly kind: 'progress'; readonly text: string }
  | { readonly kind: 'stage'; readonly imageId: Digest };
