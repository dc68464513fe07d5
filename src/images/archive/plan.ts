/**
 * Reads what an archive says about its images: `manifest.json` of `docker save`, old and new, or the index of an OCI
 * layout.
 */
import { isEngineError } from '../../errors/engine-error.js';
import type { ImageConfigDocument } from '../../ports/images.js';
import type { PublishedImage } from '../../ports/published-image.js';
import type { Digest } from '../../ports/storage.js';
import { bestManifest, canRun, formatPlatform, type Platform } from '../../registry/platform.js';
import { type ImageManifest, parseManifest, publishedAs } from '../../registry/manifest.js';
import { failure, type Outcome } from '../../workers/outcome.js';
import { isDigest, parseReference, withDefaultTag } from '../reference.js';
import { type ArchiveFiles, badArchive as bad } from './files.js';

export interface PlannedImage {
  readonly configDigest: Digest;
  readonly configBytes: Uint8Array;
  readonly diffIds: readonly Digest[];
  /**
   * For each diff ID an ArchivedLayer, or the reason why the archive has none, which matters only when the store lacks
   * the layer.
   */
  readonly layers: readonly Outcome[];
  /** Names with a tag, as the archive writes them. */
  readonly names: readonly string[];
  readonly parent: Digest | undefined;
  /** Undefined when the archive is of the old layout, which has no manifests. */
  readonly published: PublishedImage | undefined;
  /** The parts to keep; undefined too for an index in an index, which can only be kept as a whole. */
  readonly parts: ArchivedParts | undefined;
}

/** An image in an archive as registries have it. */
export interface ArchivedParts {
  /** The document that the archive names, and the manifest of the image where that is another one. */
  readonly documents: readonly { readonly digest: Digest; readonly bytes: Uint8Array }[];
  /** The layers that this manifest names, the lowest one first. */
  readonly blobs: readonly Digest[];
}

/** An image as the manifest describes it, with the parsed configuration. */
interface Draft {
  readonly configPath: string;
  readonly config: ImageConfigDocument;
  /** Paths in the archive. */
  readonly layers: readonly string[];
  readonly names: readonly string[];
  readonly parent: Digest | undefined;
  readonly published: PublishedImage | undefined;
  readonly parts: ArchivedParts | undefined;
}

const MAX_INDEX_DEPTH = 8;
/** An archive may have so many images and names, because each is written to the disk. */
const MAX_IMAGES = 10_000;
const MAX_NAMES = 10_000;

function json(bytes: Buffer, what: string): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    throw bad(`invalid ${what} in the archive: not JSON`, error);
  }
}

/**
 * Returns the images to load. With a platform, images that it cannot run are left out.
 * @throws EngineError invalid for an archive without a manifest, with a malformed one, or without the platform.
 */
export function planLoad(files: ArchiveFiles, platform: Platform | undefined, host: Platform): PlannedImage[] {
  const manifest = files.document('manifest.json');
  const index = manifest ? undefined : files.document('index.json');
  if (!manifest && !index) throw bad('the archive holds no images: it has neither manifest.json nor index.json');
  const all = manifest
    ? described(files, fromManifest(files, manifest))
    : fromLayout(files, index ?? Buffer.alloc(0), platform ?? host);
  const suitable = all.filter(
    ({ config }) =>
      !platform ||
      canRun(platform, { os: config.os, architecture: config.architecture, variant: config.variant ?? '' }),
  );
  if (platform && suitable.length === 0)
    throw bad(`no image in the archive is of the platform ${formatPlatform(platform)}`);
  return suitable.map((draft) => planned(files, draft));
}

function planned(files: ArchiveFiles, draft: Draft): PlannedImage {
  const { configPath, config, layers, names, parent, published, parts } = draft;
  const [configBytes, configDigest] = [files.document(configPath), files.digest(configPath)];
  if (!configBytes || !configDigest) throw bad(`the archive has no configuration ${JSON.stringify(configPath)}`);
  const diffIds = config.rootfs?.diff_ids ?? [];
  const places = layers.map((path) => found(files, path));
  return { configDigest, configBytes, diffIds, layers: places, names, parent, published, parts };
}

function found(files: ArchiveFiles, path: string): Outcome {
  try {
    return { ok: true, value: files.layer(path) };
  } catch (error) {
    return failure(error);
  }
}

interface ManifestItem {
  readonly Config?: unknown;
  readonly RepoTags?: unknown;
  readonly Layers?: unknown;
  readonly Parent?: unknown;
}

function fromManifest(files: ArchiveFiles, bytes: Buffer): Draft[] {
  const items = json(bytes, 'manifest.json');
  if (!Array.isArray(items)) throw bad('invalid manifest.json in the archive: not an array');
  if (items.length > MAX_IMAGES) throw bad(`manifest.json in the archive has more than ${MAX_IMAGES} images`);
  const configs = new Configurations(files);
  let names = 0;
  return items.map((item: ManifestItem | null) => {
    const { Config: config, RepoTags: tags, Layers: layers, Parent: parent } = item ?? {};
    if (typeof config !== 'string' || config === '')
      throw bad('invalid manifest.json in the archive: an image without Config');
    if (!files.document(config)) throw bad(`the archive has no configuration ${JSON.stringify(config)}`);
    const own = strings(tags, 'RepoTags');
    names += own.length;
    if (names > MAX_NAMES) throw bad(`manifest.json in the archive has more than ${MAX_NAMES} names`);
    return {
      ...configs.draft(config, strings(layers, 'Layers')),
      names: own.map(checkedName),
      parent: isDigest(parent) ? parent : undefined,
    };
  });
}

function strings(value: unknown, what: string): string[] {
  if (value === null || value === undefined) return [];
  if (!Array.isArray(value) || !value.every((item) => typeof item === 'string'))
    throw bad(`invalid manifest.json in the archive: ${what} is not a list of strings`);
  return value;
}

function checkedName(name: string): string {
  try {
    if (parseReference(name).tag !== undefined && parseReference(name).digest === undefined) return name;
  } catch (error) {
    throw bad(`invalid tag ${JSON.stringify(name)}`, error);
  }
  throw bad(`invalid tag ${JSON.stringify(name)}`);
}

/** Reads the configurations of images, each only once, even if several images have it. */
class Configurations {
  readonly #parsed = new Map<string, ImageConfigDocument>();

  constructor(private readonly files: ArchiveFiles) {}

  /**
   * Describes an image. @throws EngineError invalid when its configuration has other layers, or is for another system.
   */
  draft(configPath: string, layers: readonly string[]): Draft {
    const config = this.#parsed.get(configPath) ?? this.#parse(configPath);
    const count = config.rootfs?.diff_ids?.length ?? 0;
    if (layers.length !== count)
      throw bad(`invalid manifest, layers length mismatch: expected ${count}, got ${layers.length}`);
    return { configPath, config, layers, names: [], parent: undefined, published: undefined, parts: undefined };
  }

  #parse(path: string): ImageConfigDocument {
    const bytes = this.files.document(path);
    if (!bytes) throw bad(`the archive has no configuration ${JSON.stringify(path)}`);
    const config = json(bytes, 'image configuration') as ImageConfigDocument | null;
    const diffIds = config?.rootfs?.diff_ids;
    if (!config || !Array.isArray(diffIds ?? []) || !(diffIds ?? []).every(isDigest))
      throw bad('invalid image configuration in the archive: no root file system');
    if ((config.os ?? 'linux') !== 'linux') throw bad(`cannot load ${config.os} image on linux`);
    this.#parsed.set(path, config);
    return config;
  }
}

interface LayoutEntry {
  readonly annotations?: Readonly<Record<string, string>> | null;
}

const NAME_ANNOTATION = 'io.containerd.image.name';
const REF_ANNOTATION = 'org.opencontainers.image.ref.name';
const ATTESTATION_ANNOTATION = 'vnd.docker.reference.type';

/**
 * Reads an OCI image layout: every entry of `index.json` is an image, or an index from which the platform picks one.
 */
function fromLayout(files: ArchiveFiles, bytes: Buffer, platform: Platform): Draft[] {
  const index = parsed(bytes, 'index.json');
  if (index.kind !== 'index') throw bad('invalid index.json in the archive: not an index');
  if (index.manifests.length > MAX_IMAGES) throw bad(`index.json in the archive has more than ${MAX_IMAGES} images`);
  const entries = (json(bytes, 'index.json') as { readonly manifests: readonly LayoutEntry[] }).manifests;
  const [manifests, configs] = [new Manifests(files), new Configurations(files)];
  const images = new Map<string, { readonly draft: Draft; readonly names: Set<string> }>();
  for (const [at, { digest, platform: own }] of index.manifests.entries()) {
    const annotations = entries[at]?.annotations ?? {};
    if (ATTESTATION_ANNOTATION in annotations || own?.os === 'unknown') continue;
    const draft = imageAt(manifests, configs, digest, platform);
    if (!draft) continue;
    const known = images.get(draft.configPath) ?? { draft, names: new Set<string>() };
    images.set(draft.configPath, known);
    const name = nameOf(annotations);
    if (name !== undefined) known.names.add(name);
  }
  if (images.size === 0) throw bad(`no image in the archive is of the platform ${formatPlatform(platform)}`);
  return [...images.values()].map(({ draft, names }) => ({ ...draft, names: [...names] }));
}

function parsed(bytes: Buffer, name: string): ReturnType<typeof parseManifest> {
  try {
    return parseManifest(bytes, undefined, name);
  } catch (error) {
    throw isEngineError(error) ? bad(`${name} in the archive: ${error.message}`, error) : error;
  }
}

type Manifest = ReturnType<typeof parseManifest> & { readonly bytes: Buffer };

/** Reads manifests and indexes, each only once, even if several indexes name it. */
class Manifests {
  readonly #parsed = new Map<Digest, Manifest>();

  constructor(private readonly files: ArchiveFiles) {}

  /** Reads a manifest or index. @throws EngineError invalid for a blob that the archive lacks, or that is neither. */
  at(digest: Digest): Manifest {
    const bytes = this.files.document(blobPath(digest));
    if (!bytes) throw bad(`the archive has no blob ${digest}`);
    const manifest = this.#parsed.get(digest) ?? {
      ...parsed(bytes, `manifest ${digest}`),
      bytes,
    };
    this.#parsed.set(digest, manifest);
    return manifest;
  }

  /**
   * Reads as `at` does, but returns undefined for a blob that cannot be read so. @throws EngineError invalid when the
   * archive costs too much.
   */
  find(digest: Digest): Manifest | undefined {
    try {
      return this.at(digest);
    } catch (error) {
      if (isEngineError(error) && error.code !== 'ARCHIVE_TOO_LARGE') return undefined;
      throw error;
    }
  }
}

function imageAt(manifests: Manifests, configs: Configurations, digest: Digest, platform: Platform): Draft | undefined {
  const target = { digest, bytes: manifests.at(digest).bytes };
  let own = digest;
  let index: Manifest | undefined;
  for (let depth = 0; depth <= MAX_INDEX_DEPTH; depth++) {
    const manifest = manifests.at(own);
    if (manifest.kind === 'image') {
      const layers = manifest.layers.map((layer) => blobPath(layer.digest));
      const draft = configs.draft(blobPath(manifest.config.digest), layers);
      return {
        ...draft,
        ...cameAs(target, index ?? manifest, { ...manifest, digest: own }),
        ...(depth > 1 && NO_PARTS),
      };
    }
    const best = bestManifest(manifest.manifests, platform);
    if (!best) return undefined;
    index = manifest;
    own = best.digest;
  }
  throw bad('the indexes in the archive are nested too deeply');
}

/** Adds what an index beside `manifest.json` says about the images. Parts of it that cannot be read are left out. */
function described(files: ArchiveFiles, drafts: readonly Draft[]): Draft[] {
  const bytes = files.document('index.json');
  const manifests = new Manifests(files);
  const came = new Map<Digest, Came>();
  for (const { digest } of bytes === undefined ? [] : entriesOf(bytes)) {
    const target = manifests.find(digest);
    for (const { digest: own } of target?.kind === 'index' ? target.manifests : [{ digest }]) {
      const manifest = manifests.find(own);
      if (target && manifest?.kind === 'image')
        came.set(manifest.config.digest, cameAs({ digest, bytes: target.bytes }, target, { ...manifest, digest: own }));
    }
  }
  return drafts.map((draft) => {
    const id = files.digest(draft.configPath);
    return { ...draft, ...(id && came.get(id)) };
  });
}

type Came = Pick<Draft, 'published' | 'parts'>;

const NO_PARTS = { parts: undefined };

/** @param index has the manifest, or is it. */
function cameAs(
  target: ArchivedParts['documents'][number],
  index: Manifest,
  own: ImageManifest & { readonly bytes: Buffer; readonly digest: Digest },
): Came {
  const document = { digest: own.digest, bytes: own.bytes };
  const named = { digest: target.digest, sizeBytes: target.bytes.length };
  return {
    published: publishedAs(named, index, own.digest),
    parts: {
      documents: own.digest === target.digest ? [target] : [target, document],
      blobs: own.layers.map(({ digest }) => digest),
    },
  };
}

/** Returns the entries of an index; none when it is not an index, because some tools write attestations there. */
function entriesOf(index: Buffer): readonly { readonly digest: Digest }[] {
  try {
    const manifest = parsed(index, 'index.json');
    return manifest.kind === 'index' ? manifest.manifests : [];
  } catch (error) {
    if (isEngineError(error)) return [];
    throw error;
  }
}

function blobPath(digest: Digest): string {
  return `blobs/sha256/${digest.slice(7)}`;
}

/** Returns the full name that containerd's tools write, or else the reference if it is more than a tag. */
function nameOf(annotations: Readonly<Record<string, string>>): string | undefined {
  const written = annotations[NAME_ANNOTATION] ?? annotations[REF_ANNOTATION];
  if (typeof written !== 'string' || (annotations[NAME_ANNOTATION] === undefined && !/[:/]/.test(written)))
    return undefined;
  try {
    const reference = withDefaultTag(parseReference(written));
    return reference.digest === undefined && reference.tag !== undefined
      ? written.includes(`:${reference.tag}`)
        ? written
        : `${written}:${reference.tag}`
      : undefined;
  } catch {
    return undefined; // the specification lets tools write there what they like
  }
}
