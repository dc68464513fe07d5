/** Steps that take back what a multi-step effect did, run in reverse when a later step fails. */
import type { Logger } from '../../../ports/logger.js';

export class Undo {
  readonly #steps: { readonly what: string; readonly run: () => Promise<unknown> }[] = [];

  constructor(readonly log: Logger) {}

  add(what: string, run: () => Promise<unknown>): void {
    this.#steps.push({ what, run });
  }

  /** Runs every step even when some fail. A failure is logged, because start-up repairs what is left. */
  async run(): Promise<void> {
    for (const step of this.#steps.toReversed()) {
      await step.run().catch((error: unknown) => this.log.error({ err: error, step: step.what }, 'undo failed'));
    }
  }
}

/** Awaits all promises, so that none is in flight when a failure is undone, then throws the first rejection. */
export async function allDone<T extends readonly unknown[] | []>(
  promises: T,
): Promise<{ -readonly [P in keyof T]: Awaited<T[P]> }> {
  const results = await Promise.allSettled(promises);
  const values: unknown[] = [];
  for (const result of results) {
    if (result.status === 'rejected') throw result.reason;
    values.push(result.value);
  }
  return values as { -readonly [P in keyof T]: Awaited<T[P]> };
}
