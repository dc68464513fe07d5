/**
 * The control groups of containers from one reading to the next: the kernel takes as long to tell those of a process
 * as to fill three of their files.
 */
import type { StatsTarget } from '../ports/stats.js';
import { KEPT_MS } from './kept-files.js';

/** Returns the path of the group in the hierarchy of a controller ('' is the unified one), if there is one. */
export type GroupPath = (controller: string) => string | undefined;

interface Known {
  readonly pid: number;
  readonly group: GroupPath;
  readAt: number;
}

export class KeptGroups {
  readonly #known = new Map<string, Known>();
  #roundAt = 0;

  constructor(private readonly now: () => number = () => performance.now()) {}

  /** Begins a round of readings: forgets containers that nobody has read of late. */
  begin(): void {
    this.#roundAt = this.now();
    for (const [id, { readAt }] of this.#known) if (this.#roundAt - readAt > KEPT_MS) this.#known.delete(id);
  }

  /** Returns the groups of a container; undefined when it has to be asked for. */
  find({ id, pid }: StatsTarget): GroupPath | undefined {
    const known = this.#known.get(id);
    // A container that was started again may be in others.
    if (known?.pid !== pid) return undefined;
    known.readAt = this.#roundAt;
    return known.group;
  }

  /**
   * Keeps the groups of a container where they cannot change as long as its init lives: those that have its id in their
   * names.
   * @param controllers are asked for.
   */
  keep({ id, pid }: StatsTarget, group: GroupPath, controllers: Iterable<string>): void {
    for (const controller of controllers) if (group(controller)?.includes(id) === false) return;
    this.#known.set(id, { pid, group, readAt: this.#roundAt });
  }
}
