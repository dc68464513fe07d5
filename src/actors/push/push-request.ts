/** A push as a client asks for it. */
import type { ImageReference } from '../../images/reference.js';
import type { Credentials } from '../../registry/credentials.js';

/** These members identify a job: equal requests share one. */
export interface PushRequest {
  /** The name to push; without a tag: every tag of the repository. */
  readonly reference: ImageReference;
  readonly credentials: Credentials | undefined;
}
