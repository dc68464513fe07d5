/** Undoes what a test file has set up, last first, also when setting up stopped half-way. */
export class Cleanup {
  readonly #steps: (() => Promise<unknown>)[] = [];

  add(step: () => Promise<unknown>): void {
    this.#steps.push(step);
  }

  /** Runs every step; then throws what the failed ones threw. */
  async run(): Promise<void> {
    const errors: unknown[] = [];
    for (let step = this.#steps.pop(); step !== undefined; step = this.#steps.pop())
      await step().catch((error: unknown) => errors.push(error));
    if (errors.length === 1) throw errors[0];
    if (errors.length > 1) throw new AggregateError(errors, errors.map(String).join('\n'));
  }
}
