/** The messages to the actors of a pull: the job of one reference, and the transfer of one layer. */
import type { ImageReference } from '../../images/reference.js';
import type { Credentials } from '../../registry/credentials.js';
import type { RegistryHost } from '../../registry/endpoint.js';
import type { Platform } from '../../registry/platform.js';
import type { ResolvedImage, ResolvedLayer } from '../../registry/resolve.js';
import type { PullProgress } from './pull-progress.js';
import type { Command, RequestCancelled, RequestId } from '../kit/commands.js';

/** These members identify a job: equal requests share one. */
export interface PullRequest {
  /** With tag or digest. */
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
  /** The hosts to fetch layers from, the one that resolved the image first. */
  readonly hosts: readonly RegistryHost[];
}

export interface Joined {
  /** Stands for the client's interest until `pull.left` names it. */
  readonly interest: RequestId;
  readonly progress: PullProgress;
}

/** Answered when the image is resolved, that is before the first byte. */
export type PullCommand = Command<'pull.join', Joined>;

export type PullFact = { readonly type: 'pull.left'; readonly interest: RequestId };

export type PullEvent = PullCommand | PullFact | RequestCancelled;

/** All that a transfer needs to know. */
export interface LayerInput {
  readonly layer: ResolvedLayer;
  /** `library/alpine`. */
  readonly repository: string;
  /** In the order in which they are tried. */
  readonly hosts: readonly RegistryHost[];
  readonly credentials: Credentials | undefined;
  /**
   * Gets a connection besides the layer's own, with a function that gives it back. If it is absent, there are no
   * further connections.
   */
  readonly spare?: () => (() => void) | undefined;
}

/** Answered when the layer is in the store and one reference on it was taken for the asker. */
export type LayerCommand = Command<'layer.join'>;

export type LayerEvent = LayerCommand | RequestCancelled;

/** How far a transfer is; what readers see. */
export type LayerView =
  | { readonly phase: 'waiting' }
  | { readonly phase: 'downloading'; readonly bytes: number; readonly endpoint: string }
  | { readonly phase: 'retrying'; readonly seconds: number; readonly reason: string; readonly endpoint: string }
  | { readonly phase: 'verifying' }
  | { readonly phase: 'extracting'; readonly bytes: number }
  /** Extracted; waits for the layer below. */
  | { readonly phase: 'extracted' };
