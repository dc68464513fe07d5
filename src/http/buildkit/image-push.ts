/**
 * Pushes images that the store cannot keep: other compressions, no name, and with storage drivers several platforms,
 * annotations and attestations.
 */
import type { ImageSetPush } from '../../actors/push/push-image-set.js';
import type { BlobFile } from '../../actors/push/upload.effects.js';
import { ImageAnnotations } from '../../build/outputs/annotations.js';
import { layersOf } from '../../build/outputs/image-export.js';
import { exportedParts, imageSet } from '../../build/outputs/image-set.js';
import type { LayerBlobs, LayerForm } from '../../build/outputs/layer-blobs.js';
import { internal } from '../../errors/engine-error.js';
import { canonicalString, type ImageReference, parseReference } from '../../images/reference.js';
import type { BuildOutput, PlatformResult } from '../../ports/build.js';
import { chainOf } from '../../ports/chain-id.js';
import type { ImageSet, LeavingLayer } from '../../ports/image-set.js';
import type { Digest } from '../../ports/storage.js';
import { layerType, type PushedBlob } from '../../registry/manifest-writer.js';
import { exportOptions, flag, namesOf, type Exporter } from './export-attrs.js';
import { inPart, inStep, loginOf, type OrderedBuild } from './ordered-build.js';

export interface PushParts {
  readonly openBlobs: (form: LayerForm) => Promise<LayerBlobs>;
  /** Pushes an image that is not in the store. Resolves with its documents. */
  readonly pushSet: (push: ImageSetPush, signal: AbortSignal) => Promise<ImageSet>;
}

type Options = ReturnType<typeof exportOptions>;

/**
 * Returns whether the store keeps all that is wanted of an image.
 * @param keepsIndexes is true for a store that has images as registries have them.
 */
export function canBeStored(build: OrderedBuild, exporter: Exporter, keepsIndexes: boolean): boolean {
  const { attrs } = exporter;
  if (flag(attrs, 'push-by-digest')) return false;
  const { compression, level } = exportOptions('docker', exporter, build.attrs.buildArgs);
  const isPlain = compression === 'gzip' && level === undefined;
  return isPlain && (keepsIndexes || !(needsDocuments(build, exporter) || flag(attrs, 'oci-mediatypes')));
}

/** Returns whether an image is more than one manifest that has nothing but configuration and layers. */
export function needsDocuments({ attrs: { platforms } }: OrderedBuild, { attrs, attest }: Exporter): boolean {
  return platforms.length > 1 || attest !== undefined || !new ImageAnnotations(attrs).isEmpty;
}

/** Returns what makes the documents of an image for a store that keeps them, and tells the client of them. */
export function storedDocuments(build: OrderedBuild, exporter: Exporter): NonNullable<ImageOutput['documents']> {
  const options = exportOptions('oci', exporter, build.attrs.buildArgs);
  return async (results, layers) => {
    const set = await setOf(results, layers, options);
    tell(build, set, options.names.join(','));
    return set;
  };
}

type ImageOutput = Extract<BuildOutput, { kind: 'image' }>;

/** Layers get the types of the format, which is that of OCI where only this has a type for one. */
function setOf(
  results: readonly PlatformResult[],
  layers: readonly (readonly LeavingLayer[])[],
  options: Options,
): Promise<ImageSet> {
  const hasZstd = layers.flat().some(({ descriptor }) => descriptor.mediaType.endsWith('zstd'));
  const format = hasZstd ? 'oci' : options.format;
  const platforms = results.map((result, at) => ({
    result,
    layers: (layers[at] ?? []).map(({ diffId, descriptor }) => ({
      diffId,
      descriptor: { ...descriptor, mediaType: layerType(format, descriptor.mediaType) },
    })),
  }));
  return imageSet(platforms, { ...options, format });
}

/**
 * Returns what pushes results under each of the names, or under the digest alone.
 * @throws EngineError for names and attributes that cannot be, before anything is built.
 */
export function wholePush(
  build: OrderedBuild,
  exporter: Exporter,
  parts: PushParts,
): (results: readonly PlatformResult[]) => Promise<void> {
  const { attrs } = exporter;
  const options = exportOptions('docker', exporter, build.attrs.buildArgs);
  const references = flag(attrs, 'push-by-digest') ? untagged(attrs) : tagged(attrs);
  if (references.length === 0) throw internal('tag is needed when pushing to registry');
  return (results) =>
    inStep(build, 'exporting to image', '', async (_sent, vertex) => {
      const shown = new Set<string>();
      const prepared = await prepare(results, options, parts, build.job.signal);
      try {
        for (const reference of references) {
          const credentials = await loginOf(build, reference.domain);
          const set = await inPart(build, vertex, 'pushing layers', () =>
            parts.pushSet({ ...prepared, reference, credentials }, build.job.signal),
          );
          const name = `${canonicalString(reference)}@${set.descriptor.digest}`;
          for (const part of [...exportedParts(set), `pushing manifest for ${name}`]) {
            if (!shown.has(part)) await inPart(build, vertex, part, () => Promise.resolve());
            shown.add(part);
          }
          tell(build, set, attrs.get('name') ?? '');
        }
      } finally {
        await prepared.close();
      }
    });
}

function tagged(attrs: Exporter['attrs']): ImageReference[] {
  return namesOf(attrs).map(({ canonical }) => parseReference(canonical));
}

/** An image that has no name but its digest. @throws EngineError for names with a tag. */
function untagged(attrs: Exporter['attrs']): ImageReference[] {
  const names = (attrs.get('name') ?? '').split(',').filter((name) => name !== '');
  return names.map((name) => {
    const reference = parseReference(name);
    if (reference.tag !== undefined || reference.digest !== undefined)
      throw internal(`can't push tagged ref ${canonicalString(reference)} by digest`);
    return reference;
  });
}

/** An image as it goes to each of its names. */
interface PreparedImage extends Pick<ImageSetPush, 'layers' | 'files' | 'documents'> {
  close(): Promise<void>;
}

async function prepare(
  results: readonly PlatformResult[],
  options: Options,
  { openBlobs }: PushParts,
  signal: AbortSignal,
): Promise<PreparedImage> {
  const isUsual = options.compression === 'gzip' && options.level === undefined && options.epoch === undefined;
  return isUsual ? fromStore(results, options) : inFiles(results, options, await openBlobs(options), signal);
}

/** Layers that the registry has are not even compressed. */
function fromStore(results: readonly PlatformResult[], options: Options): PreparedImage {
  const layers = new Map<Digest, { readonly chainId: Digest; readonly diffId: Digest }>();
  const chains = results.map(({ config: { rootfs } }) => {
    const chain = chainOf(rootfs.diff_ids);
    return chain.map((chainId, at) => ({ chainId, diffId: rootfs.diff_ids[at] ?? chainId }));
  });
  for (const layer of chains.flat()) layers.set(layer.chainId, layer);
  const wanted = [...layers.values()];
  const documents = (blobs: readonly PushedBlob[]): Promise<ImageSet> => {
    const byChain = new Map(
      wanted.map(({ chainId, diffId }, at): [Digest, LeavingLayer] => {
        const { digest, sizeBytes, mediaType } = blobs[at] ?? { digest: diffId, sizeBytes: 0, mediaType: '' };
        return [chainId, { diffId, descriptor: { mediaType, digest, size: sizeBytes } }];
      }),
    );
    const layers = chains.map((chain) => chain.flatMap(({ chainId }) => byChain.get(chainId) ?? []));
    return setOf(results, layers, options);
  };
  return { layers: wanted, files: [], documents, close: () => Promise.resolve() };
}

/** Each layer is compressed once, for all names. */
async function inFiles(
  results: readonly PlatformResult[],
  options: Options,
  blobs: LayerBlobs,
  signal: AbortSignal,
): Promise<PreparedImage> {
  try {
    const platforms = await Promise.all(
      results.map(async (result) => ({ result, layers: await layersOf(result, blobs, options, signal) })),
    );
    const set = await imageSet(platforms, options);
    const files = new Map<string, BlobFile>();
    for (const { descriptor } of platforms.flatMap(({ layers }) => layers)) {
      const { digest, size, mediaType } = descriptor;
      files.set(digest, { digest, sizeBytes: size, mediaType, path: blobs.path(digest) });
    }
    return {
      layers: [],
      files: [...files.values()],
      documents: () => Promise.resolve(set),
      close: () => blobs.close(),
    };
  } catch (error) {
    await blobs.close();
    throw error;
  }
}

function tell({ response }: OrderedBuild, { descriptor, index, platforms }: ImageSet, name: string): void {
  response.set('containerimage.digest', descriptor.digest);
  response.set('containerimage.descriptor', Buffer.from(JSON.stringify(descriptor)).toString('base64'));
  const [only] = platforms;
  if (index === undefined && only) response.set('containerimage.config.digest', only.config.descriptor.digest);
  if (name !== '') response.set('image.name', name);
}
