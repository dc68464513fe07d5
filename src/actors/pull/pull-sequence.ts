/** Several pulls as one: the tags of a repository, one after the other. */
import { messageOf } from '../../errors/engine-error.js';
import type { ProgressEncoders } from '../../ports/progress.js';
import type { Outcome } from './progress-board.js';
import type { ProgressForm } from './pull-progress.js';
import { errorDetail } from './typed-progress.js';

/** The progress messages as encoded text; `return` gives up the interest in the pull. */
export interface PullSubscription extends AsyncIterableIterator<string> {
  /** How the pull ended, once it has ended. */
  readonly outcome: Outcome | undefined;
}

/** Runs one subscription after the other; it stops after the first that fails. */
export class PullSequence implements PullSubscription {
  #current: PullSubscription;
  readonly #rest: (() => Promise<PullSubscription>)[];
  readonly #form: ProgressForm;
  readonly #encoders: ProgressEncoders;
  #isOver = false;
  /** The next subscription could not be opened. */
  #failed = false;

  constructor(
    first: PullSubscription,
    rest: readonly (() => Promise<PullSubscription>)[],
    form: ProgressForm,
    encoders: ProgressEncoders,
  ) {
    this.#form = form;
    this.#encoders = encoders;
    this.#current = first;
    this.#rest = [...rest];
  }

  get outcome(): Outcome | undefined {
    return this.#failed ? 'failed' : this.#current.outcome;
  }

  async next(): Promise<IteratorResult<string>> {
    for (;;) {
      const step = await this.#current.next();
      if (step.done !== true) return step;
      const open = this.#isOver || this.outcome === 'failed' ? undefined : this.#rest.shift();
      if (!open) return step;
      try {
        this.#current = await open();
      } catch (error) {
        this.#failed = true;
        return { done: false, value: this.#failure(error) };
      }
      if (this.#isOver) await this.#current.return?.();
    }
  }

  #failure(error: unknown): string {
    return this.#form === 'typed'
      ? this.#encoders.typed({ kind: 'pull', phase: 'failed', error: errorDetail(error) })
      : this.#encoders.classic({ kind: 'failed', message: messageOf(error) });
  }

  async return(): Promise<IteratorResult<string>> {
    this.#isOver = true;
    await this.#current.return?.();
    return { done: true, value: undefined };
  }

  [Symbol.asyncIterator](): this {
    return this;
  }
}
