/** Configurations of images, for who wants to know about an image without having its files. */
import { isEngineError } from '../../errors/engine-error.js';
import { imageFor } from '../../images/platform.js';
import { parseReference, withDefaultTag } from '../../images/reference.js';
import type { FileImageStore } from '../../images/store.js';
import type { BuildRequest } from '../../ports/build.js';
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

  /** Looks here first, unless `pull` is set. @throws EngineError as a pull does. */
  async find({ name, platform, pull, credentials }: ImageQuestion, signal: AbortSignal): Promise<ImageAnswer> {
    const present = pull ? undefined : await this.#present(name, platform);
    if (present !== undefined) return present;
    const reference = withDefaultTag(parseReference(name));
    const granted = await credentials(reference.domain);
    const known = (id: Digest): Promise<Buffer | undefined> => this.images.knownConfig(id);
    const { digest, configBytes } = await this.queries.resolve(reference, platform, granted, known, signal);
    return { digest, config: configBytes };
  }

  async #present(name: string, platform: Platform | undefined): Promise<ImageAnswer | undefined> {
    try {
      const image = this.images.resolve(name);
      const suitable = platform === undefined ? image : imageFor(image, platform);
      return suitable && { digest: suitable.id, config: await this.images.configBytes(suitable) };
    } catch (error) {
      if (isEngineError(error, 'not-found')) return undefined;
      throw error;
    }
  }
}
