/** A push as a client asks for it. */
import type { ImageReference } from '../../images/reference.js';
import type { Credentials } from '../../registry/credentials.js';
import type { Platform } from '../../registry/platform.js';

/** These members identify a job: equal requests share one. */
export interface PushRequest {
  /** The name to push; without a tag: every tag of the repository. */
  readonly reference: ImageReference;
  /** Only the image of this platform, and not the index that it is in; undefined: all that is here. */
  readonly platform: Platform | undefined;
  readonly credentials: Credentials | undefined;
}
