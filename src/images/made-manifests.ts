/**
 * Manifests of images that are made here, where images are kept as registries have them: so such an image has the
 * digest of its manifest as ID, as in other engines that keep images in containerd, and `save` and pushes send that
 * manifest. A layer that no kept image has is compressed for it.
 */
import { randomUUID } from 'node:crypto';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { chainOf } from '../ports/chain-id.js';
import type { LeavingLayer } from '../ports/image-set.js';
import type { DocumentsOf, Image, ImageStore } from '../ports/images.js';
import type { PublishedImage } from '../ports/published-image.js';
import type { Digest, LayerStore } from '../ports/storage.js';
import { digestOf } from '../registry/client.js';
import type { KeptContent } from '../registry/kept-content.js';
import { layerType, PUSHED_LAYER_TYPE, type PushedBlob, writeManifest } from '../registry/manifest-writer.js';
import { KeyedLock } from '../storage/keyed-lock.js';
import type { WorkerPool } from '../workers/pool.js';
import { platformsOf } from './platform.js';

export interface MadeManifestsDeps {
  readonly kept: KeptContent;
  readonly images: Pick<ImageStore, 'list'>;
  readonly layers: Pick<LayerStore, 'openTar'>;
  /** Layers are compressed there, which takes long. */
  readonly pool: WorkerPool;
  /** Directory for compressed layers until they are kept. */
  readonly tmpDir: string;
}

/** A manifest that is kept. */
export interface MadeManifest {
  readonly published: PublishedImage;
  /** Must be called when the image is in the store, or will never be. */
  readonly close: () => void;
}

/** The images of a set that is kept, in the order of its platforms. */
export interface MadeSet {
  readonly images: readonly { readonly config: Buffer; readonly published: PublishedImage }[];
  /** Must be called when the images are in the store, or will never be. */
  readonly close: () => void;
}

/** Finds the blobs of images that have a layer; each image is asked once. */
type KeptLayers = (image: Image) => Promise<readonly PushedBlob[] | undefined>;

/** A layer and its place in the image, counted from the lowest. */
interface Place {
  readonly diffId: Digest;
  readonly chainId: Digest;
  readonly at: number;
}

/** So many images are asked for the blob of a layer before it is compressed again. */
const MAX_ASKED = 3;

export class MadeManifests {
  readonly #deps: MadeManifestsDeps;
  readonly #busy = new KeyedLock();
  /** Blobs of layers that were compressed since a manifest is under way: nothing lets go of them before its end. */
  readonly #fresh = new Map<Digest, PushedBlob>();
  #underWay = 0;

  constructor(deps: MadeManifestsDeps) {
    this.#deps = deps;
  }

  /**
   * Makes the manifest of an image that has this configuration, and keeps all that it names. The caller holds the
   * layers. @throws EngineError data-loss for a layer that was changed on disk, and whatever keeping it fails with.
   */
  make(config: Buffer, diffIds: readonly Digest[]): Promise<MadeManifest> {
    return this.#during(async (blobsOf) => {
      const blobs = await blobsOf(diffIds);
      const { bytes, mediaType, digest } = writeManifest('oci', config, blobs);
      const target = { mediaType, digest, size: bytes.length };
      const platform = {
        manifest: { bytes, descriptor: target },
        config: { bytes: config, descriptor: { mediaType: '', digest: digestOf(config), size: config.length } },
        layers: leaving(diffIds, blobs).map(({ descriptor }) => descriptor),
      };
      const { kept, close } = await this.#deps.kept.keepMade({ platforms: [platform], descriptor: target });
      return { published: { target, manifests: [target], own: digest, ...kept[0] }, close };
    });
  }

  /**
   * Does the same for an image of several platforms, or of which something is attested.
   * @param platforms are the diff IDs of each.
   */
  makeSet(platforms: readonly (readonly Digest[])[], documents: DocumentsOf): Promise<MadeSet> {
    return this.#during(async (blobsOf) => {
      const layers: LeavingLayer[][] = [];
      for (const diffIds of platforms) layers.push(leaving(diffIds, await blobsOf(diffIds)));
      const set = await documents(layers);
      const { kept, close } = await this.#deps.kept.keepMade(set);
      const { mediaType, digest, size } = set.descriptor;
      const target = { mediaType, digest, size };
      const manifests = set.index?.manifests ?? [target];
      const images = set.platforms.map(({ config, manifest }, at) => ({
        config: config.bytes,
        published: { target, manifests, own: manifest.descriptor.digest, ...kept[at] },
      }));
      return { images, close };
    });
  }

  async #during<T>(make: (blobsOf: (diffIds: readonly Digest[]) => Promise<PushedBlob[]>) => Promise<T>): Promise<T> {
    const end = this.#deps.kept.pulling();
    this.#underWay++;
    const keptLayers = this.#askOnce();
    try {
      return await make((diffIds) => this.#blobs(diffIds, keptLayers));
    } finally {
      if (--this.#underWay === 0) this.#fresh.clear();
      end();
    }
  }

  async #blobs(diffIds: readonly Digest[], keptLayers: KeptLayers): Promise<PushedBlob[]> {
    const making = chainOf(diffIds).map((chainId, at) => {
      const place = { diffId: diffIds[at] ?? chainId, chainId, at };
      return this.#busy.run(place.diffId, () => this.#blob(place, keptLayers));
    });
    // Nothing is left under way when one fails.
    await Promise.allSettled(making);
    return Promise.all(making);
  }

  #askOnce(): KeptLayers {
    const asked = new Map<Digest, Promise<readonly PushedBlob[] | undefined>>();
    return (image) => {
      const answer = asked.get(image.configDigest) ?? this.#deps.kept.layersOf(image);
      asked.set(image.configDigest, answer);
      return answer;
    };
  }

  /** Returns the blob of a layer, which is kept. */
  async #blob({ diffId, chainId, at }: Place, keptLayers: KeptLayers): Promise<PushedBlob> {
    const { kept, images } = this.#deps;
    const fresh = this.#fresh.get(diffId);
    if (fresh !== undefined) return fresh;
    const candidates = images
      .list()
      .flatMap(platformsOf)
      .filter((image) => image.config.rootfs.diff_ids[at] === diffId && kept.has(image));
    for (const image of candidates.slice(0, MAX_ASKED)) {
      const blob = (await keptLayers(image))?.[at];
      if (blob !== undefined && (await kept.holdLayer(blob, diffId))) return blob;
    }
    const made = await this.#compress(diffId, chainId);
    this.#fresh.set(diffId, made);
    return made;
  }

  async #compress(diffId: Digest, chainId: Digest): Promise<PushedBlob> {
    const { kept, layers, pool, tmpDir } = this.#deps;
    const { close, ...tar } = layers.openTar(chainId);
    const path = join(tmpDir, `made-layer-${randomUUID()}`);
    try {
      const form = { compression: 'gzip', level: undefined, epoch: undefined, path } as const;
      const { digest, sizeBytes } = await pool.run('compress-layer', { ...tar, ...form });
      const blob = { digest, sizeBytes, mediaType: layerType('oci', PUSHED_LAYER_TYPE) };
      await kept.writeLayer(blob, diffId, path);
      return blob;
    } finally {
      close();
      await rm(path, { force: true });
    }
  }
}

/** Describes the blobs of layers with types of OCI. */
function leaving(diffIds: readonly Digest[], blobs: readonly PushedBlob[]): LeavingLayer[] {
  return blobs.map(({ digest, sizeBytes, mediaType }, at) => ({
    diffId: diffIds[at] ?? digest,
    descriptor: { mediaType: layerType('oci', mediaType), digest, size: sizeBytes },
  }));
}
