/**
 * Replies that are kept for requests which clients send again under the same key, because they cannot know whether the
 * first one was done.
 */

/** A complete reply. */
export interface KeptReply {
  readonly status: number;
  /** Undefined for a reply without body. */
  readonly contentType: string | undefined;
  readonly body: string;
}

/** A request with a key, while it is being done. */
export interface Attempt {
  /** 64 hex digits that no other attempt has. What the request makes is known by them, also to the next daemon. */
  readonly id: string;
  /** Wall clock of the first attempt, in milliseconds. */
  readonly begunMs: number;
  /** True when an earlier daemon had begun the same request and was gone before it had a reply: it may be done. */
  readonly isInterrupted: boolean;
  /** Keeps the reply for all who ask again; resolves when it also survives this daemon. */
  keep(reply: KeptReply): Promise<void>;
  /** Forgets the request, because nothing was done: who asks again begins anew. Without effect after `keep`. */
  drop(): void;
}

/** `once`: who repeats it meanwhile waits for its reply. `shared`: such requests join each other, so they all run. */
export type RetryKind = 'once' | 'shared';

export interface KeyedRequest {
  /** The key with whatever it is valid for, such as the client's user. */
  readonly key: string;
  /** Equal for equal requests. */
  readonly fingerprint: string;
  readonly kind: RetryKind;
}

export interface KeptReplies {
  /**
   * Resolves with the reply of an equal request that had the key, or with the attempt to do it now.
   * @throws EngineError invalid (code KEY_REUSED) when the key belongs to another request; unavailable (code
   * OVERLOADED) when too much is kept.
   */
  admit(request: KeyedRequest): Promise<KeptReply | Attempt>;
}

export function isAttempt(admitted: KeptReply | Attempt): admitted is Attempt {
  return 'keep' in admitted;
}
