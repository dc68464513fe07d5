/** Contract of the image store: configs, tags and digests; layers are in the layer store. */
import type { ImageSet, LeavingLayer } from './image-set.js';
import type { PublishedImage } from './published-image.js';
import type { Digest } from './storage.js';
import type { HealthConfig } from './container.js';

/** `config` of an OCI/Docker image configuration. */
export interface ImageRuntimeConfig {
  User?: string;
  ExposedPorts?: Record<string, Record<string, never>> | null;
  Env?: string[] | null;
  Entrypoint?: string[] | null;
  Cmd?: string[] | null;
  Volumes?: Record<string, Record<string, never>> | null;
  WorkingDir?: string;
  Labels?: Record<string, string> | null;
  StopSignal?: string;
  Healthcheck?: HealthConfig;
  OnBuild?: string[] | null;
  Shell?: string[] | null;
  ArgsEscaped?: boolean;
}

export interface ImageHistory {
  created?: string;
  created_by?: string;
  author?: string;
  comment?: string;
  empty_layer?: boolean;
}

/** The image configuration document as it is stored. Other members are kept in the bytes. */
export interface ImageConfigDocument {
  architecture: string;
  os: string;
  variant?: string;
  'os.version'?: string;
  created?: string;
  author?: string;
  config?: ImageRuntimeConfig;
  rootfs: { type: string; diff_ids: Digest[] };
  history?: ImageHistory[];
  docker_version?: string;
  container?: string;
  comment?: string;
}

/** An image, immutable; a change of tags makes a new value. */
export interface Image {
  /** This is the digest of its configuration, or of the manifest or index that it came with. */
  readonly id: Digest;
  readonly configDigest: Digest;
  readonly config: ImageConfigDocument;
  readonly topLayer: Digest | undefined;
  /** Familiar form: `alpine:3`, `localhost:5000/a/b:latest`. */
  readonly repoTags: readonly string[];
  /** `alpine@sha256:…`. */
  readonly repoDigests: readonly string[];
  /** '' unless made by commit, build or load here. */
  readonly parent: string;
  /** Size of the files in its layers. */
  readonly sizeBytes: number;
  /** Size of the configuration, which is kept as it came. */
  readonly configSizeBytes: number;
  readonly lastTagTime: string | undefined;
  /**
   * The manifest of its last pull, its first push, or the archive that it was loaded from; undefined for an image that
   * had no manifest yet.
   */
  readonly published: PublishedImage | undefined;
  /**
   * The images of all platforms that are here under this ID, which is then that of an index, in the order of the index;
   * absent where there is one only. The image itself is the one of them that suits this machine best.
   */
  readonly platforms?: readonly Image[];
}

export interface MadeImageOptions {
  readonly parent?: Digest;
  /** The document in the bytes, of one who has made them from it: it is not read again. */
  readonly document?: ImageConfigDocument;
}

/**
 * Makes the documents of an image, when the blobs of the layers are known: those of each platform, the lowest one
 * first, with types of OCI.
 */
export type DocumentsOf = (layers: readonly (readonly LeavingLayer[])[]) => Promise<ImageSet>;

export interface CreateImageOptions extends MadeImageOptions {
  /** How a registry or an archive has it. */
  readonly published?: PublishedImage | undefined;
}

export interface ImageStore {
  /** Reads everything from disk, takes references on layers, drops images whose layers are gone and reports them. */
  load(): Promise<{ readonly removed: readonly string[] }>;
  list(): readonly Image[];
  get(id: Digest): Image | undefined;
  /**
   * Finds an image by a reference or an ID prefix, as clients write it. Throws not-found `No such image: X:latest`;
   * invalid for a malformed reference.
   */
  resolve(reference: string): Image;
  /** Stores a config whose layers are all in the layer store. Resolves with the image of its platform. Idempotent. */
  create(configBytes: Buffer, options?: CreateImageOptions): Promise<Image>;
  /**
   * Does the same for an image that is made here and has no manifest yet. It gets one where the store keeps images as
   * registries have them. The caller holds its layers.
   */
  createMade(configBytes: Buffer, options?: MadeImageOptions): Promise<Image>;
  /**
   * Does so for an image of several platforms, or of which something is attested; its ID is the digest of the index.
   * After a crash all of it is here or nothing. @param platforms are the diff IDs of each.
   * @throws EngineError not-implemented where images are not kept as registries have them.
   */
  createSet(platforms: readonly (readonly Digest[])[], documents: DocumentsOf): Promise<Image>;
  /** Points one or many `repo:tag` (normalised here) to an image; a tag that another image had is taken from it. */
  tag(references: string | readonly string[], id: Digest): Promise<void>;
  /** Registers `repo@digest`. */
  addDigest(reference: string, id: Digest): Promise<void>;
  /** Tells whether a reference points to this image now, for list and inspect of containers. */
  stillNames(reference: string, id: Digest): boolean;
  /** Calls the listener at every change. Returns a function that ends this. */
  onChange(listener: () => void): () => void;
}
