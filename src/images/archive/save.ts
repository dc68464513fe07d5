/**
 * Writes images as `docker save` of Docker 25 and later does: an OCI image layout (OCI image specification, "Image
 * Layout") that `manifest.json` and `repositories` make readable for older tools too. Layers are plain tars, but of an
 * image that is kept as a registry has it all is written as it came, and so is the rest of its index that is kept.
 */
import { createHash } from 'node:crypto';
import { Readable } from 'node:stream';
import type { ImageEmit } from '../removal.js';
import { eventAttributes } from '../removal.js';
import type { Image } from '../../ports/images.js';
import type { KeptContent, KeptImage } from '../../registry/kept-content.js';
import type { Digest, LayerStore } from '../../ports/storage.js';
import { chainOf } from '../../ports/chain-id.js';
import { familiarName, familiarString, parseReference } from '../reference.js';
import { createdMs } from '../selection.js';
import type { FileImageStore } from '../store.js';
import { ImageTar } from './image-tar.js';
import type { SavedImage } from './select.js';

const LAYER_TYPE = 'application/vnd.oci.image.layer.v1.tar';
const CONFIG_TYPE = 'application/vnd.oci.image.config.v1+json';
const MANIFEST_TYPE = 'application/vnd.oci.image.manifest.v1+json';
const INDEX_TYPE = 'application/vnd.oci.image.index.v1+json';

interface Descriptor {
  readonly mediaType: string;
  readonly digest: Digest;
  readonly size: number;
  readonly annotations?: Readonly<Record<string, string>>;
}

export interface SaveDeps {
  readonly images: FileImageStore;
  readonly layers: LayerStore;
  readonly emit: ImageEmit;
  /** Undefined when images are not kept as registries have them. */
  readonly kept?: Pick<KeptContent, 'imageOf'> | undefined;
}

/** A file of the archive, and where its bytes come from. */
interface Blob {
  readonly digest: Digest;
  readonly sizeBytes: number;
  /** Seconds since the epoch. */
  readonly mtimeSeconds: number;
  readonly content: Buffer | { readonly layer: Digest } | { readonly open: () => AsyncIterable<Buffer> };
}

/** Adds a file unless it is there already. */
type AddBlob = (digest: Digest, sizeBytes: number, content: Blob['content']) => void;

/** The documents and layers of an image, as `index.json` and `manifest.json` name them. */
interface SavedParts {
  readonly target: Descriptor;
  readonly layers: readonly Descriptor[];
}

/** The archive of the selected images. A layer is read only when its turn comes. */
export interface SavedArchive {
  /** The bytes of the tar. When they end, for whatever reason, the images are no longer held. */
  readonly chunks: AsyncGenerator<Uint8Array>;
}

/** Holds the images and prepares all documents. @throws EngineError data-loss for a damaged layer. */
export async function saveImages(deps: SaveDeps, selected: readonly SavedImage[]): Promise<SavedArchive> {
  const { layers } = deps;
  const tops = selected.flatMap(({ image }) => (image.topLayer === undefined ? [] : [image.topLayer]));
  for (const top of tops) layers.retain(top);
  const kept = new Map<Digest, KeptImage>();
  const release = async (): Promise<void> => {
    for (const one of kept.values()) one.close();
    for (const top of tops) await layers.release(top);
  };
  try {
    for (const { image, isAlone } of selected) {
      const found = kept.has(image.id) ? undefined : await deps.kept?.imageOf(image);
      if (found) kept.set(image.id, isAlone ? { ...found, target: found.manifest, others: [] } : found);
    }
    const prepared = await prepare(deps, selected, kept);
    for (const { image } of selected) deps.emit('save', image.id, eventAttributes(image, image.id));
    return { chunks: write(deps.layers, prepared, release) };
  } catch (error) {
    await release();
    throw error;
  }
}

interface Prepared {
  readonly blobs: readonly Blob[];
  readonly files: readonly (readonly [name: string, bytes: Buffer])[];
}

/** Adds an image that is kept as a registry has it, and the other images of its index that are kept. */
function addKept({ target, manifest, others, open }: KeptImage, add: AddBlob): SavedParts {
  for (const document of [target, manifest, ...others]) add(document.digest, document.bytes.length, document.bytes);
  for (const { config, layers } of [manifest, ...others])
    for (const { digest, sizeBytes } of [config, ...layers]) add(digest, sizeBytes, { open: () => open(digest) });
  return {
    target: { mediaType: target.mediaType, digest: target.digest, size: target.bytes.length },
    layers: manifest.layers.map(({ mediaType, digest, sizeBytes }) => ({ mediaType, digest, size: sizeBytes })),
  };
}

/** Adds an image of which only the configuration and the files are here, with a manifest for these. */
async function addMade({ images, layers }: SaveDeps, image: Image, add: AddBlob): Promise<SavedParts> {
  const { diff_ids: diffIds } = image.config.rootfs;
  const stack: Descriptor[] = [];
  for (const [at, layer] of chainOf(diffIds).entries()) {
    const digest = diffIds[at] ?? layer;
    const size = await layers.tarSize(layer);
    add(digest, size, { layer });
    stack.push({ mediaType: LAYER_TYPE, digest, size });
  }
  const config = await images.configBytes(image);
  add(image.configDigest, config.length, config);
  const document = jsonBytes({
    schemaVersion: 2,
    mediaType: MANIFEST_TYPE,
    config: { mediaType: CONFIG_TYPE, digest: image.configDigest, size: config.length },
    layers: stack,
  });
  const digest: Digest = `sha256:${createHash('sha256').update(document).digest('hex')}`;
  add(digest, document.length, document);
  return { target: { mediaType: MANIFEST_TYPE, digest, size: document.length }, layers: stack };
}

async function prepare(
  deps: SaveDeps,
  selected: readonly SavedImage[],
  kept: ReadonlyMap<Digest, KeptImage>,
): Promise<Prepared> {
  const blobs = new Map<Digest, Blob>();
  const index: Descriptor[] = [];
  const manifest: unknown[] = [];
  const repositories = new Map<string, Map<string, string>>();
  const configs = new Map(selected.map(({ image }) => [image.id, image.configDigest]));

  for (const { image, names } of selected) {
    const mtimeSeconds = Math.floor(createdMs(image) / 1000);
    const add: AddBlob = (digest, sizeBytes, content) => {
      if (!blobs.has(digest)) blobs.set(digest, { digest, sizeBytes, mtimeSeconds, content });
    };
    const { diff_ids: diffIds } = image.config.rootfs;
    const asPulled = kept.get(image.id);
    const { target, layers } = asPulled ? addKept(asPulled, add) : await addMade(deps, image, add);
    const references = names.map(parseReference);
    if (references.length === 0) index.push(target);
    for (const [at, reference] of references.entries()) {
      const tag = reference.tag ?? '';
      index.push({
        ...target,
        annotations: { 'io.containerd.image.name': names[at] ?? '', 'org.opencontainers.image.ref.name': tag },
      });
      const repository = repositories.get(familiarName(reference)) ?? new Map<string, string>();
      repositories.set(familiarName(reference), repository.set(tag, (diffIds.at(-1) ?? image.configDigest).slice(7)));
    }
    const parent = configs.get(image.parent as Digest);
    manifest.push({
      Config: blobPath(image.configDigest),
      RepoTags: references.length === 0 ? null : references.map(familiarString),
      Layers: layers.map(({ digest }) => blobPath(digest)),
      ...(parent === undefined ? {} : { Parent: parent }),
      LayerSources: Object.fromEntries(layers.map((layer) => [layer.digest, layer])),
    });
  }
  return {
    blobs: [...blobs.values()].sort((a, b) => (a.digest < b.digest ? -1 : 1)),
    files: [
      ['index.json', jsonBytes({ schemaVersion: 2, mediaType: INDEX_TYPE, manifests: index })],
      ['manifest.json', jsonBytes(manifest)],
      ['oci-layout', jsonBytes({ imageLayoutVersion: '1.0.0' })],
      ...(repositories.size === 0
        ? []
        : ([
            [
              'repositories',
              jsonBytes(Object.fromEntries([...repositories].map(([name, tags]) => [name, Object.fromEntries(tags)]))),
            ],
          ] as const)),
    ],
  };
}

async function* write(
  layers: LayerStore,
  prepared: Prepared,
  release: () => Promise<void>,
): AsyncGenerator<Uint8Array> {
  const archive = new ImageTar();
  const filled = fill(archive, layers, prepared).catch((error: unknown) => archive.destroy(error as Error));
  try {
    yield* archive.chunks;
  } finally {
    archive.destroy();
    await filled;
    await release();
  }
}

async function fill(archive: ImageTar, layers: LayerStore, { blobs, files }: Prepared): Promise<void> {
  await archive.directory('blobs');
  await archive.directory('blobs/sha256');
  for (const { digest, sizeBytes, mtimeSeconds, content } of blobs) {
    const bytes = Buffer.isBuffer(content) ? content : streamOf(content, layers);
    await archive.file(blobPath(digest), { sizeBytes, mtimeSeconds }, bytes);
  }
  for (const [name, bytes] of files) await archive.file(name, { sizeBytes: bytes.length, mtimeSeconds: 0 }, bytes);
  archive.end();
}

function streamOf(content: Exclude<Blob['content'], Buffer>, layers: LayerStore): Readable {
  return 'layer' in content ? layers.tarStream(content.layer) : Readable.from(content.open());
}

function blobPath(digest: Digest): string {
  return `blobs/sha256/${digest.slice(7)}`;
}

function jsonBytes(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value));
}
