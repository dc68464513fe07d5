/**
 * The tasks of ended containers that the runtime is still deleting, which is the end of a shim and of a `runc delete`.
 * A removal does not wait for that: the processes are dead, and networks, volumes and mounts are given back. The next
 * start of the container waits for it, and so does the end of the daemon. A kill of the daemon leaves such a task to
 * the next daemon, which deletes the tasks of containers that are gone.
 */
import { InFlight } from '../../kit/in-flight.js';

/** So many are not waited for: many ends at once would leave their work to those who come after them. */
const UNAWAITED = 4;
/** A task that cannot be deleted for so long keeps nobody any more: what follows says what is wrong. */
const LIMIT_MS = 60_000;

export class Departures {
  readonly #leaving = new InFlight();

  /** Notes the deletion of a task. Resolves when the release of the container's other parts may pass. */
  async begin(id: string, deleted: Promise<void>): Promise<void> {
    const isMany = this.#leaving.count >= UNAWAITED;
    void this.#leaving.note(id, deleted);
    if (isMany) await deleted;
  }

  /** Resolves when the container's task is deleted, or could not be. */
  over(id: string): Promise<void> {
    return this.#leaving.settled(id, LIMIT_MS);
  }

  /** Resolves when all are. */
  async allOver(): Promise<void> {
    await Promise.all(this.#leaving.ids().map((id) => this.over(id)));
  }
}
