/** What is said to the actor of a push. */
import type { ImageReference } from '../../images/reference.js';
import type { Credentials } from '../../registry/credentials.js';
import type { Command, RequestCancelled, RequestId } from '../kit/commands.js';
import type { ProgressBoard } from '../pull/progress-board.js';

/** What identifies a job: equal requests share one. */
export interface PushRequest {
  /** Without a tag: every tag of the repository. */
  readonly reference: ImageReference;
  readonly credentials: Credentials | undefined;
}

export interface PushInput extends PushRequest {
  readonly id: string;
}

export interface JoinedPush {
  /** Stands for the client's interest until `push.left` names it. */
  readonly interest: RequestId;
  readonly board: ProgressBoard;
}

export type PushCommand = Command<'push.join', JoinedPush>;

export type PushEvent = PushCommand | { readonly type: 'push.left'; readonly interest: RequestId } | RequestCancelled;
