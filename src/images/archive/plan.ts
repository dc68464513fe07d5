/**
 * Reads what an archive says about its images: `manifest.json` of `docker save`, old and new, or the index of an OCI
 * layout.
 */
import { isEngineError } from '../../errors/engine-error.js';
import type { PublishedImage } from '../../ports/published-image.js';
import type { Digest } from '../../ports/storage.js';
import { bestManifest, canRun, formatPlatform, type Platform } from '../../registry/platform.js';

import { failure, type Outcome } from '../../workers/outcome.js';
import { isDigest, parseReference, withDefaultTag } from '../reference.js';
import { type ArchivedAttestation, Attestations } from './attestations.js';
import {
  type ArchivedParts,
  blobPath,
  cameAs,
  type Came,
  Configurations,
  type Draft,
  json,
  type Manifest,
  Manifests,
  NO_PARTS,
  parsed,
} from './documents.js';
import { type ArchiveFiles, badArchive as bad } from './files.js';
import { MAX_IMAGES, withOthers } from './index-images.js';

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
  /** It came with another image of its index, which has the names. */
  readonly isFurther: boolean;
  readonly parent: Digest | undefined;
  /** Undefined when the archive is of the old layout, which has no manifests. */
  readonly published: PublishedImage | undefined;
  /** The parts to keep; undefined too for an index in an index, which can only be kept as a whole. */
  readonly parts: ArchivedParts | undefined;
  /** Something that is attested of it; undefined too where parts are. */
  readonly attestation: ArchivedAttestation | undefined;
}

export interface LoadPlanOptions {
  readonly platform: Platform | undefined;
  /** The platform of this machine. */
  readonly host: Platform;
  /** If true, the images of all platforms of an index are wanted, not only that which suits this machine. */
  readonly isWhole: boolean;
}

interface WantedOfIndex {
  readonly platform: Platform;
  readonly isWhole: boolean;
}

const MAX_INDEX_DEPTH = 8;
/** An archive may have so many names, because each is written to the disk. */
const MAX_NAMES = 10_000;
/** So many layers may be missing, for each of which the reason is kept until it is known whether it is needed. */
const MAX_MISSING = 5000;

/**
 * Returns the images to load. With a platform, images that it cannot run are left out.
 * @throws EngineError invalid for an archive without a manifest, with a malformed one, or without the platform.
 */
export function planLoad(files: ArchiveFiles, { platform, host, isWhole }: LoadPlanOptions): PlannedImage[] {
  const manifest = files.document('manifest.json');
  const index = manifest ? undefined : files.document('index.json');
  if (!manifest && !index) throw bad('the archive holds no images: it has neither manifest.json nor index.json');
  const all = manifest
    ? described(files, fromManifest(files, manifest))
    : fromLayout(files, index ?? Buffer.alloc(0), { platform: platform ?? host, isWhole });
  const drafts = isWhole ? withOthers(files, all) : all;
  const suitable = drafts.filter(
    ({ config }) =>
      !platform ||
      canRun(platform, { os: config.os, architecture: config.architecture, variant: config.variant ?? '' }),
  );
  if (platform && suitable.length === 0)
    throw bad(`no image in the archive is of the platform ${formatPlatform(platform)}`);
  const indexes = new Set<Digest>();
  const attestations = new Attestations(files);
  const layers = new Places(files);
  return suitable.map((draft) => {
    const target = draft.published?.target.digest;
    const isFurther = target !== undefined && target !== draft.published?.own && indexes.has(target);
    if (target !== undefined) indexes.add(target);
    const { published, parts } = draft;
    const attestation = isWhole && published && parts ? attestations.of(published) : undefined;
    return planned(files, layers, { ...draft, ...(isFurther && { names: [] }) }, { isFurther, attestation });
  });
}

/** Finds layers. What is found of a path is one object, however many images name it: all are sent to another thread. */
class Places {
  readonly #found = new Map<string, Outcome>();
  #missing = 0;

  constructor(private readonly files: ArchiveFiles) {}

  at(path: string): Outcome {
    const known = this.#found.get(path);
    if (known) return known;
    const found = this.#find(path);
    this.#found.set(path, found);
    return found;
  }

  #find(path: string): Outcome {
    try {
      return { ok: true, value: this.files.layer(path) };
    } catch (error) {
      if (++this.#missing > MAX_MISSING)
        throw bad(`the archive lacks more than ${MAX_MISSING} of the layers that it names`, error);
      return failure(error);
    }
  }
}

function planned(
  files: ArchiveFiles,
  layersOf: Places,
  draft: Draft,
  more: Pick<PlannedImage, 'isFurther' | 'attestation'>,
): PlannedImage {
  const { configPath, config, layers, names, parent, published, parts } = draft;
  const [configBytes, configDigest] = [files.document(configPath), files.digest(configPath)];
  if (!configBytes || !configDigest) throw bad(`the archive has no configuration ${JSON.stringify(configPath)}`);
  const diffIds = config.rootfs?.diff_ids ?? [];
  const places = layers.map((path) => layersOf.at(path));
  return { configDigest, configBytes, diffIds, layers: places, names, parent, published, parts, ...more };
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

interface LayoutEntry {
  readonly annotations?: Readonly<Record<string, string>> | null;
}

const NAME_ANNOTATION = 'io.containerd.image.name';
const REF_ANNOTATION = 'org.opencontainers.image.ref.name';
const ATTESTATION_ANNOTATION = 'vnd.docker.reference.type';

/**
 * Reads an OCI image layout: every entry of `index.json` is an image, or an index from which the platform picks one.
 */
function fromLayout(files: ArchiveFiles, bytes: Buffer, wanted: WantedOfIndex): Draft[] {
  const index = parsed(bytes, 'index.json');
  if (index.kind !== 'index') throw bad('invalid index.json in the archive: not an index');
  if (index.manifests.length > MAX_IMAGES) throw bad(`index.json in the archive has more than ${MAX_IMAGES} images`);
  const entries = (json(bytes, 'index.json') as { readonly manifests: readonly LayoutEntry[] }).manifests;
  const [manifests, configs] = [new Manifests(files), new Configurations(files)];
  const images = new Map<string, { readonly draft: Draft; readonly names: Set<string> }>();
  for (const [at, { digest, platform: own }] of index.manifests.entries()) {
    const annotations = entries[at]?.annotations ?? {};
    if (ATTESTATION_ANNOTATION in annotations || own?.os === 'unknown') continue;
    const draft = imageAt(manifests, configs, digest, wanted);
    if (!draft) continue;
    const known = images.get(draft.configPath) ?? { draft, names: new Set<string>() };
    images.set(draft.configPath, known);
    const name = nameOf(annotations);
    if (name !== undefined) known.names.add(name);
  }
  if (images.size === 0) throw bad(`no image in the archive is of the platform ${formatPlatform(wanted.platform)}`);
  return [...images.values()].map(({ draft, names }) => ({ ...draft, names: [...names] }));
}

function imageAt(
  manifests: Manifests,
  configs: Configurations,
  digest: Digest,
  { platform, isWhole }: WantedOfIndex,
): Draft | undefined {
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
    // Only some images of an index may be there.
    const present = isWhole
      ? manifest.manifests.filter((entry) => entry.platform?.os !== 'unknown' && manifests.find(entry.digest))
      : manifest.manifests;
    const best = bestManifest(present, platform) ?? (isWhole ? present[0] : undefined);
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
