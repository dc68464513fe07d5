/** The work of a push: every layer, then the configuration, then the manifest under its tag. */
import { cancelled, invalid, isEngineError, notFound } from '../../errors/engine-error.js';
import { chainOf } from '../../ports/chain-id.js';
import {
  canonicalName,
  canonicalString,
  familiarName,
  familiarString,
  type ImageReference,
  parseReference,
} from '../../images/reference.js';
import { requirePlatform } from '../../images/platform.js';
import { eventAttributes, type ImageEmit } from '../../images/removal.js';
import type { FileImageStore } from '../../images/store.js';
import type { Image } from '../../ports/images.js';
import type { ImageSet } from '../../ports/image-set.js';
import type { OciDescriptor, PublishedImage } from '../../ports/published-image.js';
import type { ProgressFact } from '../../ports/progress.js';
import type { Digest } from '../../ports/storage.js';
import { type RegistryAccess, withGrant } from '../../registry/access.js';
import type { CallOptions } from '../../registry/client.js';
import type { Credentials } from '../../registry/credentials.js';
import { factsOf } from '../../registry/failure.js';
import { formatFor, type PushedBlob, type WrittenManifest, writeManifest } from '../../registry/manifest-writer.js';
import type { KeptImage } from '../../registry/kept-content.js';
import type { KeptManifest } from '../../registry/kept-documents.js';
import { pushScope } from '../../registry/token.js';
import { finishUpload, headBlob, placeOf, putManifest, startUpload } from '../../registry/upload.js';
import type { ProgressBoard } from '../pull/progress-board.js';
import { Slots } from '../kit/slots.js';
import type { PushRequest } from './push-request.js';
import {
  type BlobFile,
  type LayerToPush,
  uploadBlob,
  type UploadDeps,
  uploadFile,
  uploadLayer,
  type UploadTarget,
  type UploadView,
} from './upload.effects.js';

export interface PushEffectDeps extends UploadDeps {
  readonly images: FileImageStore;
  /** Returns the access to the registry itself, never to a mirror. */
  readonly accessTo: (domain: string, credentials: Credentials | undefined) => Promise<RegistryAccess>;
  readonly emit: ImageEmit;
  readonly maxConcurrentUploads: () => number;
}

export class PushWork {
  readonly #deps: PushEffectDeps;
  /** Uploads under way by repository and layer: a second one waits, and then finds the layer there. */
  readonly #uploading = new Map<string, Promise<unknown>>();

  constructor(deps: PushEffectDeps) {
    this.#deps = deps;
  }

  /** Uploads everything and shows it on the board. Rejects after it has cleaned up. */
  async push(
    { reference, platform, credentials }: PushRequest,
    board: ProgressBoard<ProgressFact>,
    signal: AbortSignal,
  ): Promise<void> {
    try {
      const references = this.#selected(reference);
      const access = await this.#deps.accessTo(reference.domain, credentials);
      for (const one of references) await this.#pushTag({ reference: one, platform }, access, board, signal);
      const [first] = references;
      const image = first && this.#imageOf(first);
      if (image) this.#deps.emit('push', familiarString(reference), eventAttributes(image, familiarName(reference)));
    } catch (error) {
      throw signal.aborted ? signal.reason : error;
    }
  }

  /** Returns the tags to push, which exist. Throws with the texts of the reference engine. */
  #selected(reference: ImageReference): readonly ImageReference[] {
    const { images } = this.#deps;
    if (reference.digest !== undefined) throw invalid('cannot push a digest reference', { code: 'INVALID_REFERENCE' });
    const prefix = `${canonicalName(reference)}:`;
    const tags = images.list().flatMap(({ id }) => images.namesOf(id).filter((name) => name.startsWith(prefix)));
    if (tags.length === 0)
      throw notFound(`An image does not exist locally with the tag: ${familiarName(reference)}`, {
        code: 'NO_SUCH_IMAGE',
      });
    if (reference.tag === undefined) return tags.sort().map(parseReference);
    if (!tags.includes(canonicalString(reference)))
      throw notFound(`tag does not exist: ${familiarString(reference)}`, { code: 'NO_SUCH_IMAGE' });
    return [reference];
  }

  #imageOf(reference: ImageReference): Image | undefined {
    const id = this.#deps.images.idOf(canonicalString(reference));
    return id && this.#deps.images.get(id);
  }

  async #pushTag(
    { reference, platform }: Pick<PushRequest, 'reference' | 'platform'>,
    access: RegistryAccess,
    board: ProgressBoard<ProgressFact>,
    signal: AbortSignal,
  ): Promise<void> {
    const { images, layers } = this.#deps;
    const found = this.#imageOf(reference);
    if (!found) throw notFound(`tag does not exist: ${familiarString(reference)}`, { code: 'NO_SUCH_IMAGE' });
    const image = platform ? requirePlatform(found, platform, familiarString(reference)) : found;
    const { topLayer } = image;
    // The image may be removed meanwhile; what is being pushed stays.
    if (topLayer !== undefined) layers.retain(topLayer);
    let kept: KeptImage | undefined;
    try {
      const config = await images.configBytes(image);
      kept = await this.#deps.kept?.imageOf(image);
      const asPulled = kept?.manifest;
      const place: UploadTarget = { access, domain: reference.domain, path: reference.path };
      const blobs = await this.#uploadLayers(image, asPulled, place, board, signal);
      await pushConfig(place, image.configDigest, config, signal);
      const tag = reference.tag ?? 'latest';
      const index = kept && platform === undefined && kept.target !== kept.manifest ? kept : undefined;
      const { digest, bytes, mediaType } = index?.isWhole
        ? await this.#pushIndex(place, tag, index, signal)
        : await pushManifest(place, tag, { config, blobs, asPulled }, signal);
      board.say({ kind: 'line', text: `${tag}: digest: ${digest} size: ${bytes.length}` });
      board.say({ kind: 'pushed', tag, digest, sizeBytes: bytes.length });
      const target = descriptorOf({ digest, bytes, mediaType });
      if (index && !index.isWhole)
        board.say({ kind: 'pushed-alone', index: descriptorOf(index.target), manifest: target });
      const published = index?.isWhole ? image.published : undefined;
      await this.#note(reference, image.id, published ?? { target, manifests: [target], own: digest });
    } finally {
      kept?.close();
      if (topLayer !== undefined) await layers.release(topLayer);
    }
  }

  /** Pushes an index and the manifests that it names. The layers of the image itself are there already. */
  async #pushIndex(
    target: UploadTarget,
    tag: string,
    { manifest, target: document, others, open }: KeptImage,
    signal: AbortSignal,
  ): Promise<WrittenManifest> {
    const digests = new Set(others.flatMap(({ config, layers }) => [config, ...layers]).map(({ digest }) => digest));
    await this.#each([...digests], signal, (digest, either) => {
      const blob = { digest, open: () => open(digest) };
      return this.#once(digest, target, either, () => uploadBlob(this.#deps, blob, target, () => undefined, either));
    });
    for (const one of [manifest, ...others]) await putUnder(target, one.digest, one, signal);
    await putUnder(target, tag, document, signal);
    return document;
  }

  /** Notes how a registry has an image that the store has under the same name. */
  async noteSet(reference: ImageReference, { platforms, descriptor }: ImageSet): Promise<void> {
    const [only, ...others] = platforms;
    // An image of several platforms has the digest of its index as ID, if the store has it.
    if (only === undefined || others.length > 0) return;
    const { manifest, attestation, config } = only;
    const image = this.#imageOf(reference);
    if (image?.configDigest !== config.descriptor.digest) return;
    const manifests = [manifest.descriptor, ...(attestation ? [attestation.manifest.descriptor] : [])];
    await this.#note(reference, image.id, {
      target: descriptor,
      manifests,
      own: manifest.descriptor.digest,
    });
  }

  async #note(reference: ImageReference, id: Digest, published: PublishedImage): Promise<void> {
    const { images } = this.#deps;
    if (!images.get(id)) return;
    const { digest } = published.target;
    // Where it is the ID, each name has this digest.
    if (digest !== id) await images.addDigest(`${canonicalName(reference)}@${digest}`, id);
    // An index that the image was pulled with says more than this.
    await images.describe(id, published);
  }

  async #uploadLayers(
    image: Image,
    asPulled: KeptManifest | undefined,
    target: UploadTarget,
    board: ProgressBoard<ProgressFact>,
    signal: AbortSignal,
  ): Promise<readonly PushedBlob[]> {
    const diffIds = image.config.rootfs.diff_ids;
    const chain = chainOf(diffIds);
    const layers = diffIds.map((diffId, index): LayerToPush => ({
      diffId,
      chainId: chain[index] ?? diffId,
      blob: asPulled?.layers[index],
    }));
    const slots = new Slots(this.#deps.maxConcurrentUploads());
    const one = async (layer: LayerToPush, either: AbortSignal): Promise<PushedBlob> => {
      const id = layer.diffId.slice(7, 19);
      const total = this.#deps.layers.find(layer.chainId)?.sizeBytes ?? 0;
      const state = (status: string): void => board.publish(id, status, { kind: 'state', status, id });
      const free = await slots.take(either, () => state('Waiting'));
      try {
        return await this.#uploadOnce(layer, target, (view) => showUpload(board, id, total, view), either);
      } finally {
        free();
      }
    };
    for (const { diffId } of layers.toReversed())
      board.publish(diffId.slice(7, 19), 'Preparing', { kind: 'state', status: 'Preparing', id: diffId.slice(7, 19) });
    // The topmost layer, which is the newest, goes first.
    const top = await untilOneFails(signal, (either) => layers.toReversed().map((layer) => one(layer, either)));
    return top.toReversed();
  }

  /** Returns the way to a registry for what this object uploads. */
  reach(domain: string, credentials: Credentials | undefined): Promise<RegistryAccess> {
    return this.#deps.accessTo(domain, credentials);
  }

  /** Uploads layers, so many at a time as the configuration says. Resolves with their blobs, in the same order. */
  uploadAll(
    layers: readonly LayerToPush[],
    target: UploadTarget,
    signal: AbortSignal,
    show: (layer: LayerToPush, view: UploadView) => void,
  ): Promise<readonly PushedBlob[]> {
    return this.#each(layers, signal, (layer, either) =>
      this.#uploadOnce(layer, target, (view) => show(layer, view), either),
    );
  }

  /** Uploads files, so many at a time as the configuration says. Resolves when the repository has them all. */
  async uploadFiles(
    files: readonly BlobFile[],
    target: UploadTarget,
    signal: AbortSignal,
    show: (file: BlobFile, view: UploadView) => void,
  ): Promise<void> {
    await this.#each(files, signal, (file, either) =>
      this.#once(file.digest, target, either, () =>
        uploadFile(this.#deps, file, target, (view) => show(file, view), either),
      ),
    );
  }

  #each<Item, T>(
    items: readonly Item[],
    signal: AbortSignal,
    upload: (item: Item, either: AbortSignal) => Promise<T>,
  ): Promise<readonly T[]> {
    const slots = new Slots(this.#deps.maxConcurrentUploads());
    return untilOneFails(signal, (either) =>
      items.map(async (item) => {
        const free = await slots.take(either);
        try {
          return await upload(item, either);
        } finally {
          free();
        }
      }),
    );
  }

  #uploadOnce(
    layer: LayerToPush,
    target: UploadTarget,
    show: (view: UploadView) => void,
    signal: AbortSignal,
  ): Promise<PushedBlob> {
    return this.#once(layer.diffId, target, signal, () => uploadLayer(this.#deps, layer, target, show, signal));
  }

  async #once<T>(id: Digest, { domain, path }: UploadTarget, signal: AbortSignal, begin: () => Promise<T>): Promise<T> {
    const key = `${domain}/${path} ${id}`;
    for (let other = this.#uploading.get(key); other; other = this.#uploading.get(key))
      await other.catch(() => undefined); // its own push hears of it
    signal.throwIfAborted();
    const upload = begin().finally(() => this.#uploading.delete(key));
    this.#uploading.set(key, upload);
    return upload;
  }
}

/** Waits for all; one that fails ends the others. Rejects with what it failed for, or with the signal's reason. */
export async function untilOneFails<T>(
  signal: AbortSignal,
  begin: (either: AbortSignal) => readonly Promise<T>[],
): Promise<readonly T[]> {
  const abort = new AbortController();
  let failure: unknown;
  const done: T[] = [];
  const settle = async (upload: Promise<T>, index: number): Promise<void> => {
    try {
      done[index] = await upload;
    } catch (error) {
      failure ??= error;
      abort.abort(cancelled('another layer of the image failed'));
    }
  };
  await Promise.all(begin(AbortSignal.any([signal, abort.signal])).map(settle));
  if (failure !== undefined) throw signal.aborted ? signal.reason : failure;
  return done;
}

function descriptorOf({ mediaType, digest, bytes }: WrittenManifest): OciDescriptor {
  return { mediaType, digest, size: bytes.length };
}

export async function pushConfig(
  { access, path }: UploadTarget,
  id: Digest,
  config: Buffer,
  signal: AbortSignal,
): Promise<void> {
  const options: CallOptions = { limits: access.limits, signal };
  await withGrant(access, pushScope(path), signal, async (grant) => {
    const place = placeOf(grant, path);
    if ((await headBlob(place, id, options)) !== undefined) return;
    const upload = await startUpload(place, options);
    if (upload !== 'mounted') await finishUpload(place, upload, id, options, config);
  });
}

async function putUnder(
  { access, path }: UploadTarget,
  name: string,
  manifest: WrittenManifest,
  signal: AbortSignal,
): Promise<void> {
  await withGrant(access, pushScope(path), signal, (grant) =>
    putManifest(placeOf(grant, path), name, manifest, { limits: access.limits, signal }),
  );
}

interface ManifestParts {
  readonly config: Buffer;
  readonly blobs: readonly PushedBlob[];
  /** The manifest that the image was pulled with, if the blobs are those that it names. */
  readonly asPulled: WrittenManifest | undefined;
}

/**
 * Pushes the manifest: the one that is there, or one in the format that suits the layers; and in the other format when
 * the registry does not take that.
 */
async function pushManifest(
  target: UploadTarget,
  tag: string,
  { config, blobs, asPulled }: ManifestParts,
  signal: AbortSignal,
): Promise<WrittenManifest> {
  const put = async (manifest: WrittenManifest): Promise<WrittenManifest> => {
    await putUnder(target, tag, manifest, signal);
    return manifest;
  };
  const format = formatFor(blobs);
  try {
    return await put(asPulled ?? writeManifest(format, config, blobs));
  } catch (error) {
    const { status, registryCode } = factsOf(error);
    const isRefused =
      isEngineError(error) && (status === 415 || registryCode === 'MANIFEST_INVALID' || registryCode === 'UNSUPPORTED');
    if (!isRefused || signal.aborted) throw error;
    return put(writeManifest(format === 'oci' ? 'docker' : 'oci', config, blobs));
  }
}

/** Shows a step of an upload to clients, in the words of the classic stream. */
function showUpload(board: ProgressBoard<ProgressFact>, id: string, total: number, view: UploadView): void {
  const state = (status: string): void => board.publish(id, status, { kind: 'state', status, id });
  const pushing = (current: number): void =>
    board.publish(id, 'Pushing', { kind: 'bytes', status: 'Pushing', id, current, total });
  switch (view.phase) {
    case 'pushing':
      // The archive is a little longer than the files that the total counts.
      return pushing(Math.min(view.bytes, total));
    case 'retrying':
      return view.seconds === 0
        ? undefined
        : board.publish(id, 'Retrying', {
            kind: 'state',
            status: `Retrying in ${view.seconds} second${view.seconds === 1 ? '' : 's'}`,
            id,
          });
    case 'exists':
      return state('Layer already exists');
    case 'mounted':
      return state(`Mounted from ${view.from}`);
    case 'pushed':
      if (total > 0) pushing(total);
      return state('Pushed');
  }
}
