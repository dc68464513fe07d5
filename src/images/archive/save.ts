/**
 * Writes images as `docker save` of Docker 25 and later does: an OCI image layout (OCI image specification, "Image
 * Layout") that `manifest.json` and `repositories` make readable for older tools too. Layers are plain tars.
 */
import { createHash } from 'node:crypto';
import type { ImageEmit } from '../removal.js';
import { eventAttributes } from '../removal.js';
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
}

/** A file of the archive, and where its bytes come from. */
interface Blob {
  readonly digest: Digest;
  readonly sizeBytes: number;
  /** Seconds since the epoch. */
  readonly mtimeSeconds: number;
  readonly content: Buffer | { readonly layer: Digest };
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
  const release = async (): Promise<void> => {
    for (const top of tops) await layers.release(top);
  };
  try {
    const prepared = await prepare(deps, selected);
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

async function prepare({ images, layers }: SaveDeps, selected: readonly SavedImage[]): Promise<Prepared> {
  const blobs = new Map<Digest, Blob>();
  const index: Descriptor[] = [];
  const manifest: unknown[] = [];
  const repositories = new Map<string, Map<string, string>>();
  const configs = new Map(selected.map(({ image }) => [image.id, image.configDigest]));

  for (const { image, names } of selected) {
    const mtimeSeconds = Math.floor(createdMs(image) / 1000);
    const { diff_ids: diffIds } = image.config.rootfs;
    const stack: Descriptor[] = [];
    for (const [at, layer] of chainOf(diffIds).entries()) {
      const digest = diffIds[at] ?? layer;
      const size = blobs.get(digest)?.sizeBytes ?? (await layers.tarSize(layer));
      if (!blobs.has(digest)) blobs.set(digest, { digest, sizeBytes: size, mtimeSeconds, content: { layer } });
      stack.push({ mediaType: LAYER_TYPE, digest, size });
    }
    const add = (content: Buffer, digest: Digest): void =>
      void blobs.set(digest, { digest, sizeBytes: content.length, mtimeSeconds, content });
    const config = await images.configBytes(image.id);
    add(config, image.configDigest);
    const document = jsonBytes({
      schemaVersion: 2,
      mediaType: MANIFEST_TYPE,
      config: { mediaType: CONFIG_TYPE, digest: image.configDigest, size: config.length },
      layers: stack,
    });
    const digest: Digest = `sha256:${createHash('sha256').update(document).digest('hex')}`;
    add(document, digest);

    const described: Descriptor = { mediaType: MANIFEST_TYPE, digest, size: document.length };
    const references = names.map(parseReference);
    if (references.length === 0) index.push(described);
    for (const [at, reference] of references.entries()) {
      const tag = reference.tag ?? '';
      index.push({
        ...described,
        annotations: { 'io.containerd.image.name': names[at] ?? '', 'org.opencontainers.image.ref.name': tag },
      });
      const repository = repositories.get(familiarName(reference)) ?? new Map<string, string>();
      repositories.set(familiarName(reference), repository.set(tag, (diffIds.at(-1) ?? image.configDigest).slice(7)));
    }
    const parent = configs.get(image.parent as Digest);
    manifest.push({
      Config: blobPath(image.configDigest),
      RepoTags: references.length === 0 ? null : references.map(familiarString),
      Layers: diffIds.map(blobPath),
      ...(parent === undefined ? {} : { Parent: parent }),
      LayerSources: Object.fromEntries(stack.map((layer) => [layer.digest, layer])),
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
    const bytes = Buffer.isBuffer(content) ? content : layers.tarStream(content.layer);
    await archive.file(blobPath(digest), { sizeBytes, mtimeSeconds }, bytes);
  }
  for (const [name, bytes] of files) await archive.file(name, { sizeBytes: bytes.length, mtimeSeconds: 0 }, bytes);
  archive.end();
}

function blobPath(digest: Digest): string {
  return `blobs/sha256/${digest.slice(7)}`;
}

function jsonBytes(value: unknown): Buffer {
  return Buffer.from(JSON.stringify(value));
}
