/** Loads the images of an archive into the store. */
import { isDeepStrictEqual } from 'node:util';
import { type Outcome, unwrap } from '../../workers/outcome.js';
import { dataLoss, internal, invalid } from '../../errors/engine-error.js';
import type { PieceSource } from '../../ports/archives.js';
import type { Image, ImageHistory } from '../../ports/images.js';
import type { Digest, LayerContent, LayerInfo } from '../../ports/storage.js';
import type { KeptContent } from '../../registry/kept-content.js';
import type { Platform } from '../../registry/platform.js';
import type { KeptDocument } from '../../registry/whole-image.js';
import { chainId } from '../../ports/chain-id.js';
import { platformsOf } from '../platform.js';
import { canonicalString, familiarString, parseReference } from '../reference.js';
import { eventAttributes, type ImageEmit } from '../removal.js';
import type { FileImageStore } from '../store.js';
import type { ArchivedLayer } from './contents.js';
import type { ArchivedDocument } from './documents.js';
import type { PlannedImage } from './plan.js';
import { type ReceiveDeps, type ReceivedArchive, receiveArchive } from './receive.js';

export interface LoadDeps extends ReceiveDeps {
  readonly images: FileImageStore;
  readonly emit: ImageEmit;
  /** Gets images as the archive has them; undefined: they are not kept so. With it goes `blobDir`. */
  readonly kept?: Pick<KeptContent, 'pulling' | 'keepLayer' | 'keepImage'> | undefined;
}

export interface LoadRequest {
  readonly source: PieceSource;
  readonly platform: Platform | undefined;
  readonly signal: AbortSignal;
  /** Called with the bytes read of a layer; `id` names it in progress lines. */
  readonly onProgress: (id: string, bytes: number, totalBytes: number) => void;
  /** Sends a line to the user. */
  readonly say: (line: string) => void;
}

/**
 * Loads the images. Each appears as a whole, in the order of the archive; after an error the images before it stay.
 * @throws EngineError as `receiveArchive`; invalid or data-loss for images that do not fit together.
 */
export async function loadImages(deps: LoadDeps, request: LoadRequest): Promise<void> {
  const { layers } = deps;
  const { signal, say } = request;
  const known = new Set<string>();
  for (const image of deps.images.list())
    for (const { config } of platformsOf(image))
      for (const diffId of config.rootfs.diff_ids) known.add(diffId.slice(7));
  const isWhole = deps.kept !== undefined;
  const archive = await receiveArchive(deps, { ...request, isWhole }, (path, bytes, totalBytes) => {
    const name = nameOfLayer(path);
    if (!known.has(name)) request.onProgress(name.slice(0, 12), bytes, totalBytes);
  });
  /**
   * These layers are kept until the end: images of the archive share them, and an image that fails must not remove
   * them.
   */
  const retained: Digest[] = [];
  const end = deps.kept?.pulling();
  try {
    const plans = archive.images;
    const loader = new Loader(deps, archive, retained);
    const ids: Digest[] = [];
    for (const plan of plans) {
      signal.throwIfAborted();
      ids.push(await loader.load(plan, say));
    }
    const loaded = new Map(plans.map(({ configDigest }, at) => [configDigest, ids[at]]));
    const parents = new Map<Digest, Digest>();
    for (const [at, plan] of plans.entries()) {
      const [id, parent] = [ids[at], plan.parent && loaded.get(plan.parent)];
      if (id !== undefined && parent !== undefined) parents.set(id, parent);
    }
    // Once for each image, however often the archive names it: their histories are compared.
    for (const [id, parent] of parents) await setParent(deps.images, id, parent);
    const last = plans.findLast(({ isFurther }) => !isFurther);
    if ((last?.names.length ?? 0) === 0) for (const id of new Set(ids)) say(`Loaded image ID: ${id}\n`);
  } finally {
    for (const layer of retained.toReversed()) await layers.release(layer);
    await archive.staged.discard();
    end?.();
  }
}

/** Returns the unpacked layer. @throws EngineError as the unpacking did; internal when the disk was too small. */
function unpacked({ result }: ArchivedLayer): LayerContent {
  // The limit was the free space of the disk.
  if (!result.ok && result.code === 'LAYER_TOO_LARGE')
    throw internal('loading a layer: no space left on device', { code: 'ENOSPC' });
  return unwrap(result) as LayerContent;
}

/**
 * Sets the parent of an image. @throws EngineError invalid unless the history of the image is that of the parent and
 * one more step.
 */
async function setParent(images: FileImageStore, id: Digest, parent: Digest): Promise<void> {
  const history = (of: Digest): readonly ImageHistory[] => images.get(of)?.config.history ?? [];
  const [own, its] = [history(id), history(parent)];
  const isNext =
    (own.length === 0 && its.length === 0) ||
    (own.length === its.length + 1 && its.every((step, at) => isDeepStrictEqual(step, own[at])));
  if (!isNext) throw invalid(`image ${parent} is not a valid parent for ${id}`, { code: 'BAD_PARENT' });
  await images.setParent(id, parent);
}

/**
 * Returns the short name of a layer in progress lines: the digits of `<hex>/layer.tar`, `<hex>.tar` or
 * `blobs/sha256/<hex>`.
 */
function nameOfLayer(path: string): string {
  const place = path.endsWith('/layer.tar') ? path.slice(0, -'/layer.tar'.length) : path;
  return /[0-9a-f]{64}/.exec(place.slice(place.lastIndexOf('/') + 1))?.[0] ?? path.slice(path.lastIndexOf('/') + 1);
}

function bufferOf(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}

function keptDocument({ digest, bytes }: ArchivedDocument): KeptDocument {
  return { digest, bytes: bufferOf(bytes) };
}

class Loader {
  readonly #deps: LoadDeps;
  /** The chain ID of each layer that was committed already, because the same file may be needed in another place. */
  readonly #committed = new Map<string, Digest>();

  constructor(
    deps: LoadDeps,
    private readonly archive: ReceivedArchive,
    private readonly retained: Digest[],
  ) {
    this.#deps = deps;
  }

  async load(plan: PlannedImage, say: (line: string) => void): Promise<Digest> {
    const { configDigest, diffIds, layers: found, names, published } = plan;
    const { images, layers, emit } = this.#deps;
    const letGo = images.holdComing(configDigest, published);
    try {
      let below: Digest | undefined;
      for (const [at, diffId] of diffIds.entries()) {
        const chain = chainId(below, diffId);
        if (!layers.find(chain)) await this.#commit(found.at(at), at, diffId, below);
        layers.retain(chain);
        this.retained.push(chain);
        below = chain;
      }
      const image = await images.create(bufferOf(plan.configBytes), { published });
      if (published) await images.describe(image.id, published);
      await this.#keep(plan, image);
      if (names.length > 0) await this.#name(names, image, say);
      if (!plan.isFurther) emit('load', image.id, eventAttributes(image, image.id));
      return image.id;
    } finally {
      letGo();
    }
  }

  /** Keeps an image as the archive has it, if its ID is of that, and its manifest has the layers of the image. */
  async #keep(plan: PlannedImage, image: Image): Promise<void> {
    const { id } = image;
    const { configDigest, configBytes, diffIds, published, parts, attestation } = plan;
    const { kept, images } = this.#deps;
    if (!kept || !published || !parts || (id !== published.target.digest && id !== published.own)) return;
    const layers = plan.layers.flatMap((found) => (found.ok ? (found.value as ArchivedLayer) : []));
    const isSame = ({ result, blobDigest }: ArchivedLayer, at: number): boolean =>
      result.ok && (result.value as LayerContent).diffId === diffIds[at] && blobDigest === parts.blobs[at];
    if (layers.length !== parts.blobs.length || !layers.every(isSame)) return;
    for (const { place, blobDigest: digest, blobBytes: sizeBytes, result } of layers) {
      const path = this.archive.staged.blobPath(place);
      const { diffId } = unwrap(result) as LayerContent;
      if (path !== undefined) await kept.keepLayer({ digest, sizeBytes }, diffId, path);
    }
    const facts = await kept.keepImage({
      configDigest,
      configBytes: bufferOf(configBytes),
      layers: parts.blobs.map((digest) => ({ blob: { digest } })),
      documents: parts.documents.map(keptDocument),
      attestation: attestation && {
        manifest: keptDocument(attestation.manifest),
        blobs: attestation.blobs.map(keptDocument),
      },
      published,
    });
    if (facts) await images.setPublished(image, { ...published, ...facts });
  }

  async #commit(
    found: Outcome | undefined,
    at: number,
    diffId: Digest,
    parent: Digest | undefined,
  ): Promise<LayerInfo> {
    if (found === undefined) throw dataLoss(`layer ${diffId} of the archive is gone`, { code: 'LAYER_MISSING' });
    const layer = unwrap(found) as ArchivedLayer;
    const extracted = unpacked(layer);
    if (extracted.diffId !== diffId) {
      throw dataLoss(
        `invalid diffID for layer ${at}: expected ${JSON.stringify(diffId)}, got ${JSON.stringify(extracted.diffId)}`,
        { code: 'DIFF_ID_MISMATCH' },
      );
    }
    const staged = this.archive.staged.take(layer.place);
    const before = this.#committed.get(layer.path);
    if (!staged) {
      if (before === undefined) throw dataLoss(`layer ${diffId} of the archive is gone`, { code: 'LAYER_MISSING' });
      return this.#deps.layers.copyLayer(before, parent);
    }
    try {
      const info = await staged.commit({ ...extracted, parent }, this.#deps.pool);
      this.#committed.set(layer.path, info.chainId);
      return info;
    } catch (error) {
      await staged.discard();
      throw error;
    }
  }

  /** Gives an image all its names in one write, because an archive may have thousands. */
  async #name(names: readonly string[], image: Image, say: (line: string) => void): Promise<void> {
    const { images } = this.#deps;
    const references = names.map(parseReference);
    for (const reference of references) {
      const previous = images.idOf(canonicalString(reference));
      if (previous !== undefined && previous !== image.id) {
        const shown = familiarString(reference);
        say(`The image ${shown} already exists, renaming the old one with ID ${previous} to empty string\n`);
      }
    }
    await images.tag(names, image.id);
    for (const reference of references) say(`Loaded image: ${familiarString(reference)}\n`);
  }
}
