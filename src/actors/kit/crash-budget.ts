/**
 * Decides how soon a crashed child is begun again: later with each crash, and not by itself when it crashes too often.
 */

/** Crashes that one child may have in the window before it stays down. */
const CRASH_BUDGET = 5;
const CRASH_WINDOW_MS = 60_000;
const FIRST_BACKOFF_MS = 100;

export class CrashBudget {
  readonly #crashes = new Map<string, number[]>();

  /** Counts a crash. Returns milliseconds to wait before the next incarnation, undefined when the budget is spent. */
  spend(id: string): number | undefined {
    const now = Date.now();
    const recent = (this.#crashes.get(id) ?? []).filter((at) => now - at < CRASH_WINDOW_MS);
    recent.push(now);
    this.#crashes.set(id, recent);
    return recent.length > CRASH_BUDGET ? undefined : FIRST_BACKOFF_MS * 2 ** (recent.length - 1);
  }

  /** Forgets the crashes of a child that has ended well. */
  forget(id: string): void {
    this.#crashes.delete(id);
  }
}
