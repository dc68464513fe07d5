/** What is asked of a push. */
import type { ImageReference } from '../../images/reference.js';
import type { Credentials } from '../../registry/credentials.js';

/** What identifies a job: equal requests share one. */
export interface PushRequest {
  /** Without a tag: every tag of the repository. */
  readonly reference: ImageReference;
  readonly credentials: Credentials | undefined;
}
