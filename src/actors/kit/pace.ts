/**
 * Limits how long work may go on without progress. A slow disk or a busy machine must never be taken for work that
 * hangs, so the limit is generous, and work whose length nobody can know, such as a copy, is not limited at all.
 */
import { deadline, type EngineError } from '../../errors/engine-error.js';
import { silenceLimitMs } from './faults.js';

/** This error code says that work was given up because it made no progress. */
export const NO_PROGRESS = 'NO_PROGRESS';

const MAX_TIMER_MS = 2 ** 31 - 1;

export class Pace {
  #timer: NodeJS.Timeout | undefined;
  /** This many parts without a limit are under way. */
  #unlimited = 0;
  #isOver = false;

  constructor(
    private readonly what: string,
    private readonly onHung: (error: EngineError) => void,
    /** The work takes this long when all is well. */
    private readonly usualMs = 0,
  ) {
    this.#restart();
  }

  /** Takes the limit away until this part of the work is done. Returns the same promise. */
  unlimited<T>(part: Promise<T>): Promise<T> {
    this.#unlimited++;
    clearTimeout(this.#timer);
    const done = (): void => {
      if (--this.#unlimited === 0 && !this.#isOver) this.#restart();
    };
    part.then(done, done);
    return part;
  }

  end(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
  }

  #restart(): void {
    // Clients may ask for a longer time than one timer can hold.
    const limitMs = Math.min(this.usualMs + silenceLimitMs(), MAX_TIMER_MS);
    this.#timer = setTimeout(() => this.onHung(noProgress(this.what, limitMs)), limitMs).unref();
  }
}

/** Rejects when the work takes longer than usual by more than the limit. The work itself goes on. */
export function inTime<T>(what: string, work: Promise<T>, usualMs = 0): Promise<T> {
  return new Promise((resolve, reject) => {
    const pace = new Pace(what, reject, usualMs);
    work.then(resolve, reject).finally(() => pace.end());
  });
}

/** Rejects with the reason of the signal when it aborts first. The work itself goes on. */
export function unlessAborted<T>(signal: AbortSignal, work: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const onAbort = (): void => reject(signal.reason as Error);
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}

function noProgress(what: string, limitMs: number): EngineError {
  return deadline(`${what} has made no progress for ${Math.round(limitMs / 1000)} seconds and was given up`, {
    code: NO_PROGRESS,
  });
}
