/** Configurations of images, for who wants to know about an image without having its files. */
import { isEngineError, notFound } from '../../errors/engine-error.js';
import { imageFor, platformsOf } from '../../images/platform.js';
import { parseReference, withDefaultTag } from '../../images/reference.js';
import type { FileImageStore } from '../../images/store.js';
import type { BuildRequest } from '../../ports/build.js';
import type { Image } from '../../ports/images.js';
import type { Digest } from '../../ports/storage.js';
import type { Platform } from '../../registry/platform.js';
import type { RegistryQueries } from '../registry-session/queries.js';

export interface ImageQuestion extends Pick<BuildRequest, 'pull' | 'credentials'> {
  /** Such as `docker.io/library/alpine:3`. */
  readonly name: string;
  /** undefined: the one of an image that is here, else the host's. */
  readonly platform: Platform | undefined;
}

export interface ImageAnswer {
  /** Digest of what the name stands for: an index, a manifest, or the configuration of an image that is here only. */
  readonly digest: Digest;
  /** The document as it is stored. */
  readonly config: Buffer;
}

export class ImageConfigs {
  constructor(
    private readonly images: FileImageStore,
    private readonly queries: Pick<RegistryQueries, 'resolve'>,
  ) {}

  /** Looks here first, unless `pull` is set. @throws EngineError as a pull does; one that is not there is just that. */
  async find(question: ImageQuestion, signal: AbortSignal): Promise<ImageAnswer> {
    const present = await this.#present(question);
    if (present !== undefined) return present;
    const { name, platform, credentials } = question;
    const reference = withDefaultTag(parseReference(name));
    const granted = await credentials(reference.domain);
    const known = (id: Digest): Promise<Buffer | undefined> => this.images.knownConfig(id);
    try {
      const { digest, configBytes } = await this.queries.resolve(reference, platform, granted, known, signal);
      return { digest, config: configBytes };
    } catch (error) {
      if (!isEngineError(error) || error.code !== 'MANIFEST_UNKNOWN') throw error;
      throw notFound(`${name}: not found`, { cause: error });
    }
  }

  /** Returns the image that answers when it is here. Nothing is read: what it says of itself is in memory. */
  present({ name, platform, pull }: ImageQuestion): Image | undefined {
    if (pull) return undefined;
    try {
      const image = this.images.resolve(name);
      if (platform !== undefined) return imageFor(image, platform);
      return platformsOf(image).find(({ configDigest }) => configDigest === image.configDigest);
    } catch (error) {
      if (isEngineError(error, 'not-found')) return undefined;
      throw error;
    }
  }

  async #present(question: ImageQuestion): Promise<ImageAnswer | undefined> {
    const image = this.present(question);
    try {
      return image && { digest: image.id, config: await this.images.configBytes(image) };
    } catch (error) {
      if (isEngineError(error, 'not-found')) return undefined;
      throw error;
    }
  }
}
