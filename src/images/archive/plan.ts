/**
 * What an archive says about its images: `manifest.json` of `docker save`, old and new, or the index of an OCI layout.
 */
import { createHash } from 'node:crypto';
import { dataLoss, type EngineError, invalid, isEngineError } from '../../errors/engine-error.js';
import type { ImageConfigDocument } from '../../ports/images.js';
import type { PublishedImage } from '../../ports/published-image.js';
import type { Digest } from '../../ports/storage.js';
import { bestManifest, canRun, formatPlatform, type Platform } from '../../registry/platform.js';
import { type IndexManifest, parseManifest, publishedAs } from '../../registry/manifest.js';
import { toBytePath, toText } from '../../storage/byte-path.js';
import { cleanName } from '../../storage/tar/entry-name.js';
import type { ArchiveContents, ArchivedLayer } from '../../workers/read-archive.js';
import { isDigest, parseReference, withDefaultTag } from '../reference.js';

export interface PlannedImage {
  readonly configBytes: Buffer;
  readonly config: ImageConfigDocument;
  /** As many as the configuration has diff IDs, the lowest first. */
  readonly layers: readonly string[];
  /** Names with a tag, as the archive writes them. */
  readonly names: readonly string[];
  readonly parent: Digest | undefined;
  /** Undefined when the archive is of the old layout, which has no manifests. */
  readonly published: PublishedImage | undefined;
}

const bad = (message: string, cause?: unknown): EngineError =>
  invalid(message, { code: 'BAD_ARCHIVE', ...(cause === undefined ? {} : { cause }) });

/** Links in a row before they count as a circle, as in the kernel. */
const MAX_LINKS = 40;
const MAX_INDEX_DEPTH = 8;

/** Files of an archive by their paths, links followed. */
export class ArchiveFiles {
  readonly #documents: ReadonlyMap<string, Uint8Array>;
  readonly #links: ReadonlyMap<string, string>;
  /** Of equal paths the last one counts, as when the archive is unpacked. */
  readonly #layers: ReadonlyMap<string, ArchivedLayer>;

  constructor({ documents, layers, links }: ArchiveContents) {
    this.#documents = new Map(documents);
    this.#links = new Map(links);
    this.#layers = new Map(layers.map((layer) => [layer.path, layer]));
  }

  /** @throws EngineError invalid for a path out of the archive and for links in a circle. */
  #resolve(text: string): string {
    let path = cleanName(toBytePath(text));
    for (let hops = 0; ; hops++) {
      const target = this.#links.get(path);
      if (target === undefined) return path;
      if (hops === MAX_LINKS) throw bad(`too many links at ${JSON.stringify(text)} in the archive`);
      path = target;
    }
  }

  document(text: string): Buffer | undefined {
    const path = this.#resolve(text);
    const bytes = this.#documents.get(path);
    if (!bytes) return undefined;
    const buffer = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    checkBlob(path, digestOf(buffer));
    return buffer;
  }

  /** @throws EngineError invalid when there is none, or a document in its place; the error of its unpacking. */
  layer(text: string): ArchivedLayer {
    const path = this.#resolve(text);
    const layer = this.#layers.get(path);
    if (!layer) throw bad(`the archive has no layer ${JSON.stringify(text)}`);
    if (layer.result.ok) checkBlob(path, layer.blobDigest);
    return layer;
  }
}

/** Files in `blobs` are named by their digests. */
function checkBlob(path: string, digest: Digest): void {
  const named = /^blobs\/sha256\/([^/]*)$/.exec(path)?.[1];
  if (named !== undefined && `sha256:${named}` !== digest)
    throw dataLoss(`blob sha256:${toText(named)} in the archive has the digest ${digest}`, { code: 'DIGEST_MISMATCH' });
}

function json(bytes: Buffer, what: string): unknown {
  try {
    return JSON.parse(bytes.toString('utf8'));
  } catch (error) {
    throw bad(`invalid ${what} in the archive: not JSON`, error);
  }
}

/**
 * The images to load. A platform leaves out those that it cannot run.
 * @throws EngineError invalid for an archive without a manifest, with a malformed one, or without the platform.
 */
export function planLoad(files: ArchiveFiles, platform: Platform | undefined, host: Platform): PlannedImage[] {
  const manifest = files.document('manifest.json');
  const index = manifest ? undefined : files.document('index.json');
  if (!manifest && !index) throw bad('the archive holds no images: it has neither manifest.json nor index.json');
  const all = manifest
    ? described(files, fromManifest(files, manifest))
    : fromLayout(files, index ?? Buffer.alloc(0), platform ?? host);
  if (!platform) return all;
  const suitable = all.filter(({ config }) =>
    canRun(platform, { os: config.os, architecture: config.architecture, variant: config.variant ?? '' }),
  );
  if (suitable.length === 0) throw bad(`no image in the archive is of the platform ${formatPlatform(platform)}`);
  return suitable;
}

interface ManifestItem {
  readonly Config?: unknown;
  readonly RepoTags?: unknown;
  readonly Layers?: unknown;
  readonly Parent?: unknown;
}

function fromManifest(files: ArchiveFiles, bytes: Buffer): PlannedImage[] {
  const items = json(bytes, 'manifest.json');
  if (!Array.isArray(items)) throw bad('invalid manifest.json in the archive: not an array');
  return items.map((item: ManifestItem | null) => {
    const { Config: config, RepoTags: tags, Layers: layers, Parent: parent } = item ?? {};
    if (typeof config !== 'string' || config === '')
      throw bad('invalid manifest.json in the archive: an image without Config');
    const configBytes = files.document(config);
    if (!configBytes) throw bad(`the archive has no configuration ${JSON.stringify(config)}`);
    return planned(
      configBytes,
      strings(layers, 'Layers'),
      strings(tags, 'RepoTags').map(checkedName),
      isDigest(parent) ? parent : undefined,
    );
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

function planned(
  configBytes: Buffer,
  layers: readonly string[],
  names: readonly string[],
  parent: Digest | undefined,
): PlannedImage {
  const config = json(configBytes, 'image configuration') as ImageConfigDocument | null;
  const diffIds = config?.rootfs?.diff_ids;
  if (!config || !Array.isArray(diffIds ?? []) || !(diffIds ?? []).every(isDigest))
    throw bad('invalid image configuration in the archive: no root file system');
  if ((config.os ?? 'linux') !== 'linux') throw bad(`cannot load ${config.os} image on linux`);
  const count = diffIds?.length ?? 0;
  if (layers.length !== count)
    throw bad(`invalid manifest, layers length mismatch: expected ${count}, got ${layers.length}`);
  return { configBytes, config, layers, names, parent, published: undefined };
}

interface LayoutEntry {
  readonly annotations?: Readonly<Record<string, string>> | null;
}

const NAME_ANNOTATION = 'io.containerd.image.name';
const REF_ANNOTATION = 'org.opencontainers.image.ref.name';
const ATTESTATION_ANNOTATION = 'vnd.docker.reference.type';

/** OCI image layout: every entry of `index.json` is an image, or an index of which the platform picks one. */
function fromLayout(files: ArchiveFiles, bytes: Buffer, platform: Platform): PlannedImage[] {
  const index = parsed(bytes, 'index.json');
  if (index.kind !== 'index') throw bad('invalid index.json in the archive: not an index');
  const entries = (json(bytes, 'index.json') as { readonly manifests: readonly LayoutEntry[] }).manifests;
  const images = new Map<Digest, { readonly plan: PlannedImage; readonly names: Set<string> }>();
  for (const [at, { digest, platform: own }] of index.manifests.entries()) {
    const annotations = entries[at]?.annotations ?? {};
    if (ATTESTATION_ANNOTATION in annotations || own?.os === 'unknown') continue;
    const plan = imageAt(files, digest, platform);
    if (!plan) continue;
    const id = digestOf(plan.configBytes);
    const known = images.get(id) ?? { plan, names: new Set<string>() };
    images.set(id, known);
    const name = nameOf(annotations);
    if (name !== undefined) known.names.add(name);
  }
  if (images.size === 0) throw bad(`no image in the archive is of the platform ${formatPlatform(platform)}`);
  return [...images.values()].map(({ plan, names }) => ({ ...plan, names: [...names] }));
}

function parsed(bytes: Buffer, name: string): ReturnType<typeof parseManifest> {
  try {
    return parseManifest(bytes, undefined, name);
  } catch (error) {
    throw isEngineError(error) ? bad(`${name} in the archive: ${error.message}`, error) : error;
  }
}

function imageAt(files: ArchiveFiles, digest: Digest, platform: Platform): PlannedImage | undefined {
  const target = { digest, sizeBytes: blob(files, digest).length };
  let own = digest;
  let index: IndexManifest | undefined;
  for (let depth = 0; depth <= MAX_INDEX_DEPTH; depth++) {
    const manifest = parsed(blob(files, own), `manifest ${own}`);
    if (manifest.kind === 'image') {
      const layers = manifest.layers.map((layer) => blobPath(layer.digest));
      return {
        ...planned(blob(files, manifest.config.digest), layers, [], undefined),
        published: publishedAs(target, index ?? manifest, own),
      };
    }
    const best = bestManifest(manifest.manifests, platform);
    if (!best) return undefined;
    index = manifest;
    own = best.digest;
  }
  throw bad('the indexes in the archive are nested too deeply');
}

/** Adds what an index beside `manifest.json` says of the images; they do without what cannot be read of it. */
function described(files: ArchiveFiles, plans: readonly PlannedImage[]): PlannedImage[] {
  const read = (path: string): (ReturnType<typeof parseManifest> & { readonly sizeBytes: number }) | undefined => {
    try {
      const bytes = files.document(path);
      return bytes && { ...parsed(bytes, path), sizeBytes: bytes.length };
    } catch (error) {
      if (isEngineError(error)) return undefined; // also what is no image: attestations
      throw error;
    }
  };
  const published = new Map<Digest, PublishedImage>();
  const index = read('index.json');
  for (const { digest } of index?.kind === 'index' ? index.manifests : []) {
    const target = read(blobPath(digest));
    for (const { digest: own } of target?.kind === 'index' ? target.manifests : [{ digest }]) {
      const manifest = read(blobPath(own));
      if (target && manifest?.kind === 'image')
        published.set(manifest.config.digest, publishedAs({ digest, sizeBytes: target.sizeBytes }, target, own));
    }
  }
  return plans.map((plan) => ({ ...plan, published: published.get(digestOf(plan.configBytes)) }));
}

function digestOf(bytes: Buffer): Digest {
  return `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
}

function blobPath(digest: Digest): string {
  return `blobs/sha256/${digest.slice(7)}`;
}

function blob(files: ArchiveFiles, digest: Digest): Buffer {
  const bytes = files.document(blobPath(digest));
  if (!bytes) throw bad(`the archive has no blob ${digest}`);
  return bytes;
}

/** The full name that containerd's tools write, else the reference when it says more than a tag. */
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
