/** One line of the table that `engined check` prints. */

/**
 * - `ok`: as it should be.
 * - `note`: something is missing that only some uses need.
 * - `warning`: the daemon works, and containers are held less firmly, or something in use is known to be broken.
 * - `failure`: the daemon would not start, or no container.
 */
export type Verdict = 'ok' | 'note' | 'warning' | 'failure';

export interface Row {
  readonly name: string;
  readonly verdict: Verdict;
  /** Says what was found, and where it is not right, what to do. */
  readonly text: string;
}

export function row(name: string, verdict: Verdict, text: string): Row {
  return { name, verdict, text };
}

/** The exit status that goes with each verdict; a failure has that of a configuration which is refused. */
const STATUS: Readonly<Record<Verdict, number>> = { ok: 0, note: 0, warning: 2, failure: 1 };
const ORDER: readonly Verdict[] = ['ok', 'note', 'warning', 'failure'];

export function worstOf(rows: readonly Row[]): Verdict {
  return rows.reduce<Verdict>(
    (worst, { verdict }) => (ORDER.indexOf(verdict) > ORDER.indexOf(worst) ? verdict : worst),
    'ok',
  );
}

export function statusOf(rows: readonly Row[]): number {
  return STATUS[worstOf(rows)];
}
