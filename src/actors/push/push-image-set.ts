/** Pushes what a build has made and the store cannot keep: an index, attestations, layers in another form. */
import { blobDocuments, manifestDocuments } from '../../build/outputs/image-set.js';
import type { ImageReference } from '../../images/reference.js';
import type { ImageSet } from '../../ports/image-set.js';
import { withGrant } from '../../registry/access.js';
import type { Credentials } from '../../registry/credentials.js';
import type { PushedBlob } from '../../registry/manifest-writer.js';
import { pushScope } from '../../registry/token.js';
import { placeOf, putManifest } from '../../registry/upload.js';
import { pushConfig, type PushWork } from './push.effects.js';
import type { BlobFile, LayerToPush } from './upload.effects.js';

export interface ImageSetPush {
  /** Without a tag the image has its digest only. */
  readonly reference: ImageReference;
  readonly credentials: Credentials | undefined;
  /** Layers that are compressed on the way, and blobs in files. */
  readonly layers: readonly LayerToPush[];
  readonly files: readonly BlobFile[];
  /** Makes the documents, when the blobs of the layers are known: they are in the order of `layers`. */
  readonly documents: (blobs: readonly PushedBlob[]) => Promise<ImageSet>;
}

/** Resolves with what has been pushed. @throws EngineError as a push does. */
export async function pushImageSet(
  work: Pick<PushWork, 'reach' | 'uploadAll' | 'uploadFiles' | 'noteSet'>,
  { reference, credentials, layers, files, documents }: ImageSetPush,
  signal: AbortSignal,
): Promise<ImageSet> {
  const { domain, path, tag } = reference;
  const access = await work.reach(domain, credentials);
  const target = { access, domain, path };
  const blobs = await work.uploadAll(layers, target, signal, () => undefined);
  await work.uploadFiles(files, target, signal, () => undefined);
  const set = await documents(blobs);
  for (const { descriptor, bytes } of blobDocuments(set)) await pushConfig(target, descriptor.digest, bytes, signal);
  const manifests = manifestDocuments(set);
  for (const [at, { descriptor, bytes }] of manifests.entries()) {
    const { digest, mediaType } = descriptor;
    const name = at === manifests.length - 1 ? (tag ?? digest) : digest;
    await withGrant(access, pushScope(path), signal, (grant) =>
      putManifest(placeOf(grant, path), name, { bytes, mediaType }, { limits: access.limits, signal }),
    );
  }
  await work.noteSet(reference, set);
  return set;
}
