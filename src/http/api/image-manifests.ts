/**
 * `Manifests` of images: the manifests of the index that an image came with, and how much of them is here (Engine API
 * 1.47).
 */
import { platformsOf } from '../../images/platform.js';
import type { ImageUser } from '../../images/removal.js';
import type { Image } from '../../ports/images.js';
import type { OciDescriptor, OciPlatform } from '../../ports/published-image.js';
import type { Digest } from '../../ports/storage.js';

type Json = Readonly<Record<string, unknown>>;

/**
 * Returns the bytes of an image of one platform that are kept as registries have it; undefined: only its configuration
 * is.
 */
export type ContentBytes = (image: Image) => number | undefined;

/**
 * Lists the manifests of images that are here. `Content` counts the bytes that are kept as they came; the files of
 * layers are kept in any case, and `Unpacked` counts them.
 */
export class ImageManifests {
  /** The images that are here, by the digest of their manifest: an index may have several of them. */
  readonly #byManifest: ReadonlyMap<Digest, Image>;
  /** The bytes of what is attested of images and is kept, by the digest of its manifest. */
  readonly #attested: ReadonlyMap<Digest, number>;

  /** @param images all that are here. @param users returns the containers of an image. */
  constructor(
    images: readonly Image[],
    private readonly users: (id: Digest) => readonly ImageUser[],
    private readonly contentBytes: ContentBytes,
  ) {
    this.#byManifest = new Map(
      images
        .flatMap(platformsOf)
        .flatMap((image): [Digest, Image][] => (image.published ? [[image.published.own, image]] : [])),
    );
    this.#attested = new Map(
      images
        .flatMap(platformsOf)
        .flatMap(({ published }) => published?.attested ?? [])
        .map(({ digest, contentBytes }) => [digest, contentBytes]),
    );
  }

  /**
   * Returns one element for each manifest of the index that an image came with; none for an image that had no manifest
   * yet.
   */
  of(image: Image): readonly Json[] {
    const own = new Map(platformsOf(image).map((one) => [one.published?.own, one]));
    return (image.published?.manifests ?? []).map((descriptor) => {
      const attested = attestedBy(descriptor);
      if (attested !== undefined) {
        const bytes = this.#attested.get(descriptor.digest);
        return { ...sized(descriptor, bytes), Kind: 'attestation', AttestationData: { For: attested } };
      }
      return this.#item(descriptor, own.get(descriptor.digest) ?? this.#byManifest.get(descriptor.digest));
    });
  }

  #item(descriptor: OciDescriptor, image: Image | undefined): Json {
    const platform = descriptor.platform ?? (image && platformOf(image));
    if (platform === undefined || platform.os === 'unknown')
      return { ...this.#about(descriptor, image), Kind: 'unknown' };
    const users = image ? this.users(image.id).filter(({ manifest }) => isOf(image, manifest)) : [];
    const containers = users.map(({ id }) => id);
    return {
      ...this.#about(descriptor, image),
      Kind: 'image',
      ImageData: { Platform: platform, Containers: containers, Size: { Unpacked: image?.sizeBytes ?? 0 } },
    };
  }

  /** Renders the members that every kind of manifest has. @param image the image of this manifest, if it is here. */
  #about(descriptor: OciDescriptor, image: Image | undefined): Json {
    return sized(descriptor, image && (this.contentBytes(image) ?? image.configSizeBytes), image?.sizeBytes);
  }
}

/** @param content undefined: it is not here. */
function sized(descriptor: OciDescriptor, content: number | undefined, unpacked = 0): Json {
  return {
    ID: descriptor.digest,
    Descriptor: descriptor,
    Available: content !== undefined,
    Size: { Total: (content ?? 0) + unpacked, Content: content ?? 0 },
  };
}

/**
 * Returns the bytes that are kept of all platforms of an image, with what is attested of them; undefined: only
 * configurations are.
 */
export function contentSum(image: Image, contentBytes: ContentBytes): number | undefined {
  const bytes = platformsOf(image).flatMap((one) => {
    const own = contentBytes(one);
    return own === undefined ? [] : [own + (one.published?.attested?.contentBytes ?? 0)];
  });
  return bytes.length === 0 ? undefined : bytes.reduce((sum, one) => sum + one);
}

/** Tells whether a container was made for the platform of an image. @param manifest that the container's image had. */
function isOf({ id, published }: Image, manifest: string | undefined): boolean {
  return published === undefined || id === published.own || manifest === undefined || manifest === published.own;
}

/** Returns the digest of the manifest that an attestation of BuildKit is about. */
function attestedBy({ annotations }: OciDescriptor): string | undefined {
  return annotations?.['vnd.docker.reference.type'] === 'attestation-manifest'
    ? annotations['vnd.docker.reference.digest']
    : undefined;
}

function platformOf({ config }: Image): OciPlatform {
  const { architecture, os, variant, 'os.version': osVersion } = config;
  return {
    architecture,
    os,
    ...(osVersion === undefined ? {} : { 'os.version': osVersion }),
    ...(variant === undefined ? {} : { variant }),
  };
}
