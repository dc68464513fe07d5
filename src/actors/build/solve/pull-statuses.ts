/** Makes of the lines of a pull the rows that a step shows: one for each layer that comes. */
import type { BuildObserver } from '../../../ports/build.js';
import { ownMember } from '../../../text/own-member.js';

export class PullStatuses {
  readonly #started = new Map<string, number>();

  constructor(
    private readonly observer: BuildObserver,
    private readonly vertex: string,
  ) {}

  /** @param lines of a pull's progress, as clients get them. */
  add(lines: string): void {
    for (const line of lines.split('\n')) {
      if (line.trim() === '') continue;
      try {
        this.#show(JSON.parse(line) as object);
      } catch {
        // A row is missing then.
      }
    }
  }

  #show(line: object): void {
    const id = ownMember(line as Record<string, unknown>, 'id');
    const status = ownMember(line as Record<string, unknown>, 'status');
    const detail = (ownMember(line as Record<string, unknown>, 'progressDetail') ?? {}) as Record<string, unknown>;
    if (typeof id !== 'string' || typeof status !== 'string') return;
    const isDone = status === 'Pull complete' || status === 'Already exists';
    if (status !== 'Downloading' && !isDone) return;
    const started = this.#started.get(id) ?? Date.now();
    this.#started.set(id, started);
    const number = (name: string): number => Number(ownMember(detail, name) ?? 0);
    this.observer.status({
      id,
      vertex: this.vertex,
      name: id,
      current: number('current'),
      total: number('total'),
      started,
      ...(isDone && { completed: Date.now() }),
    });
  }
}
