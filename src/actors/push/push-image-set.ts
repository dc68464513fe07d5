/** Pushes what a build has made and the store cannot keep: an index, attestations, layers in another form. */
import { createReadStream } from 'node:fs';
import { blobDocuments, type ImageSet, manifestDocuments } from '../../build/outputs/image-set.js';
import type { ImageReference } from '../../images/reference.js';
import type { Digest } from '../../ports/storage.js';
import { withGrant } from '../../registry/access.js';
import type { CallOptions } from '../../registry/client.js';
import type { Credentials } from '../../registry/credentials.js';
import type { PushedBlob } from '../../registry/manifest-writer.js';
import { pushScope } from '../../registry/token.js';
import { finishUpload, headBlob, placeOf, putManifest, sendChunk, startUpload } from '../../registry/upload.js';
import { Slots } from '../kit/slots.js';
import { pushConfig, type PushWork, untilOneFails } from './push.effects.js';
import type { LayerToPush, UploadTarget } from './upload.effects.js';

/** A blob that goes as it is. */
export interface BlobFile {
  readonly digest: Digest;
  readonly sizeBytes: number;
  readonly path: string;
}

export interface ImageSetPush {
  /** Without a tag the image has its digest only. */
  readonly reference: ImageReference;
  readonly credentials: Credentials | undefined;
  /** Layers that are compressed on the way, and blobs in files. */
  readonly layers: readonly LayerToPush[];
  readonly files: readonly BlobFile[];
  /** Makes the documents, when the blobs of the layers are known: they are in the order of `layers`. */
  readonly documents: (blobs: readonly PushedBlob[]) => ImageSet;
}

/** A registry gets so many files of one push at a time. */
const FILES_AT_A_TIME = 3;
const PIECE_BYTES = 1 << 20;

/** Resolves with what has been pushed. @throws EngineError as a push does. */
export async function pushImageSet(
  work: Pick<PushWork, 'reach' | 'uploadAll'>,
  { reference, credentials, layers, files, documents }: ImageSetPush,
  signal: AbortSignal,
): Promise<ImageSet> {
  const { domain, path, tag } = reference;
  const access = await work.reach(domain, credentials);
  const target = { access, domain, path };
  const blobs = await work.uploadAll(layers, target, signal, () => undefined);
  const slots = new Slots(FILES_AT_A_TIME);
  await untilOneFails(signal, (either) =>
    files.map(async (file) => {
      const free = await slots.take(either);
      try {
        await pushFile(target, file, either);
      } finally {
        free();
      }
    }),
  );
  const set = documents(blobs);
  for (const { descriptor, bytes } of blobDocuments(set)) await pushConfig(target, descriptor.digest, bytes, signal);
  const manifests = manifestDocuments(set);
  for (const [at, { descriptor, bytes }] of manifests.entries()) {
    const { digest, mediaType } = descriptor;
    const name = at === manifests.length - 1 ? (tag ?? digest) : digest;
    await withGrant(access, pushScope(path), signal, (grant) =>
      putManifest(placeOf(grant, path), name, { bytes, mediaType }, { limits: access.limits, signal }),
    );
  }
  return set;
}

async function pushFile({ access, path }: UploadTarget, file: BlobFile, signal: AbortSignal): Promise<void> {
  const options: CallOptions = { limits: access.limits, signal };
  await withGrant(access, pushScope(path), signal, async (grant) => {
    const place = placeOf(grant, path);
    if ((await headBlob(place, file.digest, options)) !== undefined) return;
    const begun = await startUpload(place, options);
    if (begun === 'mounted') return;
    const content = createReadStream(file.path, { highWaterMark: PIECE_BYTES });
    const sent = await sendChunk(place, begun, content, options);
    await finishUpload(place, sent, file.digest, options);
  });
}
