/** Contexts that come with a request of their own, which names the build that waits for it. */
import { EngineError, invalid } from '../../errors/engine-error.js';
import type { ArchiveSource } from '../../ports/archives.js';

/** The two requests of a client come one after the other. */
const PATIENCE_MS = 60_000;
const MAX_WAITING = 1_000;

interface Upload {
  readonly body: ArchiveSource;
  /** Lets the request of the body end. */
  readonly used: () => void;
}

interface Meeting {
  readonly offered: Promise<Upload>;
  readonly taken: Promise<void>;
  readonly offer: (upload: Upload) => void;
  readonly take: () => void;
}

export class Uploads {
  readonly #meetings = new Map<string, Meeting>();

  /** Offers a body to the build of this ID. Resolves when the build has used it. @throws EngineError */
  async offer(id: string, body: ArchiveSource, signal: AbortSignal): Promise<void> {
    const { offer, taken } = this.#meeting(id);
    const used = new Promise<void>((resolve) => offer({ body, used: resolve }));
    try {
      await orGone(taken, signal, `no build ${id} has asked for the upload`);
      await orGone(used, signal);
    } finally {
      this.#meetings.delete(id);
    }
  }

  /** Resolves with the body for the build of this ID. @throws EngineError when none comes. */
  async take(id: string, signal: AbortSignal): Promise<Upload> {
    const { offered, take } = this.#meeting(id);
    take();
    try {
      return await orGone(offered, signal, `no upload for the build ${id}`);
    } finally {
      this.#meetings.delete(id);
    }
  }

  #meeting(id: string): Meeting {
    const known = this.#meetings.get(id);
    if (known !== undefined) return known;
    if (this.#meetings.size >= MAX_WAITING) throw new EngineError('unavailable', 'there are too many uploads');
    let offer: Meeting['offer'] = () => undefined;
    let take: Meeting['take'] = () => undefined;
    const offered = new Promise<Upload>((resolve) => (offer = resolve));
    const taken = new Promise<void>((resolve) => (take = resolve));
    const meeting = { offered, taken, offer, take };
    this.#meetings.set(id, meeting);
    return meeting;
  }
}

/**
 * @param late is the message when it takes too long; absent: it may take any time.
 * @throws EngineError cancelled when the client leaves, invalid when the time is up.
 */
function orGone<T>(event: Promise<T>, signal: AbortSignal, late?: string): Promise<T> {
  return new Promise((resolve, reject) => {
    const timer = late === undefined ? undefined : setTimeout(() => reject(invalid(late)), PATIENCE_MS);
    const leave = (): void => reject(new EngineError('cancelled', 'context canceled'));
    signal.addEventListener('abort', leave, { once: true });
    if (signal.aborted) leave();
    const stop = (): void => {
      clearTimeout(timer);
      signal.removeEventListener('abort', leave);
    };
    void event.then(resolve, reject).finally(stop);
  });
}
