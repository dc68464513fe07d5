/** Sends the cache of a build to a directory of content that the client offers. */
import type { BlobFile } from '../../actors/push/upload.effects.js';
import type { LayerBlobs, LayerForm } from '../../build/outputs/layer-blobs.js';
import { type Descriptor, MEDIA_TYPES } from '../../build/outputs/image-documents.js';
import type { LayerBlob, TravellingCache } from '../../build/outputs/travelling-cache.js';
import type { Digest } from '../../ports/storage.js';
import { cacheManifest, type CacheManifestForm } from '../../registry/cache-manifest.js';
import { digestOf } from '../../registry/client.js';
import type { ClientContent, ContentBlob } from './client-content.js';

export interface ClientCacheParts {
  /** Makes files of layers. */
  readonly openBlobs: (form: LayerForm) => Promise<LayerBlobs>;
}

/** Shows a part of an export until the returned function is called. */
export type ShowPart = (name: string) => () => void;

export interface CacheOrder {
  readonly cache: TravellingCache;
  readonly content: ClientContent;
  readonly form: CacheManifestForm;
  readonly layerForm: LayerForm;
  readonly show: ShowPart;
}

/** Resolves with what describes the manifest. @throws EngineError when the client does not take a part. */
export async function sendCache(
  { cache, content, form, layerForm, show }: CacheOrder,
  { openBlobs }: ClientCacheParts,
  signal: AbortSignal,
): Promise<Descriptor> {
  const send = async (name: string, digest: Digest, sizeBytes: number, bytes: ContentBlob['bytes']) => {
    const sent = show(`writing ${name} ${digest}`);
    await content.write({ digest, sizeBytes, bytes }, signal);
    sent();
  };
  const mediaType = MEDIA_TYPES.oci.layer[layerForm.compression];
  const blobs = await openBlobs(layerForm);
  try {
    const layers: LayerBlob[] = [];
    for (const { chainId } of cache.layers) {
      const { digest, sizeBytes } = await blobs.blob(chainId, signal);
      await send('layer', digest, sizeBytes, () => blobs.read(digest));
      layers.push({ digest, sizeBytes, mediaType });
    }
    const config = cache.document(layers);
    await send('config', digestOf(config), config.length, () => onePiece(config));
    const manifest = cacheManifest(form, config, layers);
    const { digest, bytes } = manifest;
    await send('cache image manifest', digest, bytes.length, () => onePiece(bytes));
    return { mediaType: manifest.mediaType, digest, size: bytes.length };
  } finally {
    await blobs.close();
  }
}

/** Makes the files of a cache, in the order of its layers. */
export async function layerFiles(
  { layers }: TravellingCache,
  blobs: LayerBlobs,
  { compression }: LayerForm,
  signal: AbortSignal,
): Promise<BlobFile[]> {
  const mediaType = MEDIA_TYPES.oci.layer[compression];
  return Promise.all(
    layers.map(async ({ chainId }) => {
      const { digest, sizeBytes } = await blobs.blob(chainId, signal);
      return { digest, sizeBytes, mediaType, path: blobs.path(digest) };
    }),
  );
}

async function* onePiece(bytes: Buffer): AsyncGenerator<Buffer> {
  yield await Promise.resolve(bytes);
}
