/** The actor of a pull is told these messages, and its effects hand these values to each other. */
import type { ImageReference } from '../../images/reference.js';
import type { Digest } from '../../ports/storage.js';
import type { Credentials } from '../../registry/credentials.js';
import type { RegistryHost } from '../../registry/endpoint.js';
import type { Platform } from '../../registry/platform.js';
import type { ResolvedImage, ResolvedLayer } from '../../registry/resolve.js';

/** These members identify a job: equal requests share one. */
export interface PullRequest {
  /** The image, with tag or digest. */
  readonly reference: ImageReference;
  readonly platform: Platform | undefined;
  readonly credentials: Credentials | undefined;
}

export interface PullInput extends PullRequest {
  readonly id: string;
}

/** An image resolved at the host that has it. */
export interface LocatedImage {
  readonly image: ResolvedImage;
  /** The ID that it has, or gets, in the store. */
  readonly imageId: Digest;
  /** The hosts to fetch layers from; the one that resolved the image comes first. */
  readonly hosts: readonly RegistryHost[];
}

export interface PullJob {
  readonly pull: PullInput;
  readonly located: LocatedImage;
}

/** Nobody wants the image any more. */
export type PullEvent = { readonly type: 'pull.cancel' };

/** The actor's last word: if the error is undefined, the image is registered. */
export interface PullOutcome {
  readonly error: unknown;
}

/** All that a transfer needs to know about its layer. */
export interface LayerInput {
  readonly layer: ResolvedLayer;
  /** Path of the repository, such as `library/alpine`. */
  readonly repository: string;
  /** The hosts in the order in which they are tried. */
  readonly hosts: readonly RegistryHost[];
  readonly credentials: Credentials | undefined;
  /**
   * Gets a connection besides the layer's own, with a function that gives it back. If it is absent, there are no
   * further connections.
   */
  readonly spare?: () => (() => void) | undefined;
}
