/** Pushes the cache of a build: layers, the document that says what they are, and a manifest that names them all. */
import type { ImageReference } from '../../images/reference.js';
import type { Digest } from '../../ports/storage.js';
import { withGrant } from '../../registry/access.js';
import { cacheManifest, type CacheManifestForm } from '../../registry/cache-manifest.js';
import { digestOf } from '../../registry/client.js';
import type { Credentials } from '../../registry/credentials.js';
import type { PushedBlob } from '../../registry/manifest-writer.js';
import { pushScope } from '../../registry/token.js';
import { placeOf, putManifest } from '../../registry/upload.js';
import { pushConfig, type PushWork } from './push.effects.js';
import type { BlobFile, LayerToPush, UploadTarget, UploadView } from './upload.effects.js';

export interface CachePush {
  /** With a tag. */
  readonly reference: ImageReference;
  readonly credentials: Credentials | undefined;
  readonly layers: readonly LayerToPush[];
  /** The blobs of the layers, in their order, where they are in files; undefined: they are compressed on the way. */
  readonly files?: readonly BlobFile[];
  /** Makes the document, when the blobs of the layers are known. */
  readonly document: (blobs: readonly PushedBlob[]) => Buffer;
  readonly form: CacheManifestForm;
  /** Hears of each part that begins to be written; the returned function is called when it is done. */
  readonly onPart: (name: string) => () => void;
}

/** Resolves with the digest of the manifest. @throws EngineError as a push does. */
export async function pushCache(
  work: Pick<PushWork, 'reach' | 'uploadAll' | 'uploadFiles'>,
  push: CachePush,
  signal: AbortSignal,
): Promise<Digest> {
  const { reference, credentials, document, form, onPart } = push;
  const { domain, path } = reference;
  const access = await work.reach(domain, credentials);
  const target = { access, domain, path };
  const blobs = await pushLayers(work, push, target, signal);
  const config = document(blobs);
  const configDigest = digestOf(config);
  const configWritten = onPart(`writing config ${configDigest}`);
  await pushConfig(target, configDigest, config, signal);
  configWritten();
  const manifest = cacheManifest(form, config, blobs);
  const written = onPart(`writing cache image manifest ${manifest.digest}`);
  await withGrant(access, pushScope(path), signal, (grant) =>
    putManifest(placeOf(grant, path), reference.tag ?? 'latest', manifest, { limits: access.limits, signal }),
  );
  written();
  return manifest.digest;
}

async function pushLayers(
  work: Pick<PushWork, 'uploadAll' | 'uploadFiles'>,
  { layers, files, onPart }: CachePush,
  target: UploadTarget,
  signal: AbortSignal,
): Promise<readonly PushedBlob[]> {
  const begun = new Map<Digest, () => void>();
  const tell = (name: Digest, { phase }: UploadView): void => {
    if (!begun.has(name)) begun.set(name, onPart(`writing layer ${name}`));
    if (phase === 'pushed' || phase === 'exists' || phase === 'mounted') begun.get(name)?.();
  };
  if (files === undefined) return work.uploadAll(layers, target, signal, ({ diffId }, view) => tell(diffId, view));
  const once = new Map(files.map((file) => [file.digest, file]));
  await work.uploadFiles([...once.values()], target, signal, ({ digest }, view) => tell(digest, view));
  return files;
}
