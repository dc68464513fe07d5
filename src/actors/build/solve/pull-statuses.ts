/**
 * Makes of the records of a pull the rows that a step shows, as BuildKit has them: what was resolved, and for each
 * layer that comes its bytes, and after them its unpacking.
 */
import type { BuildObserver, BuildStatus } from '../../../ports/build.js';

/** Records about the pull as a whole, and about its layers; docs/registries.md has all their members. */
type PullRecord =
  | { readonly kind: 'pull'; readonly phase: string; readonly reference: string; readonly digest: string }
  | {
      readonly kind: 'layer';
      readonly phase: string;
      readonly digest: string;
      readonly current: number;
      readonly total: number;
    };

type Row = Omit<BuildStatus, 'started' | 'completed'>;

export class PullStatuses {
  /** When rows were shown first, by their names. */
  readonly #started = new Map<string, number>();
  readonly #completed = new Set<string>();

  constructor(
    private readonly observer: Pick<BuildObserver, 'status'>,
    private readonly vertex: string,
  ) {}

  /** @param lines records of the typed form of a pull's progress, each on a line. */
  add(lines: string): void {
    for (const line of lines.split('\n')) if (line !== '') this.#show(JSON.parse(line) as PullRecord);
  }

  #show(record: PullRecord): void {
    const { phase, digest } = record;
    if (record.kind === 'pull') {
      const { reference } = record;
      const named = reference.includes('@') ? reference : `${reference}@${digest}`;
      if (phase === 'resolve') this.#complete(this.#row(`resolve ${named}`));
      return;
    }
    const { current, total } = record;
    const bytes = { ...this.#row(digest, 'downloading'), current, total };
    const unpacking = this.#row(`extracting ${digest}`, 'extract');
    // A layer that waits has no bytes yet, one that was here needs none, and a failure is the step's.
    if (phase === 'download') this.#go(bytes);
    if (phase === 'verify' || phase === 'extract' || phase === 'done') this.#complete({ ...bytes, name: 'done' });
    if (phase === 'extract') this.#go(unpacking);
    if (phase === 'done') this.#complete(unpacking);
  }

  #row(id: string, name = ''): Row {
    return { id, vertex: this.vertex, name, current: 0, total: 0 };
  }

  #go(row: Row): void {
    // An image may have the same layer twice, and clients show a row that has ended as open again.
    if (this.#completed.has(row.id)) return;
    this.observer.status({ ...row, started: this.#since(row) });
  }

  #complete(row: Row): void {
    if (this.#completed.has(row.id)) return;
    this.#completed.add(row.id);
    this.observer.status({ ...row, started: this.#since(row), completed: Date.now() });
  }

  #since({ id }: Row): number {
    const started = this.#started.get(id) ?? Date.now();
    this.#started.set(id, started);
    return started;
  }
}
