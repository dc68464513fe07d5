/**
 * The tasks of ended containers that the runtime is still deleting, which is the end of a shim and of a `runc delete`.
 * Whoever removes a container does not wait for that: its processes are dead, and what it had of networks, volumes and
 * mounts is given back. Who starts it again does, and so does the end of the daemon. A kill of the daemon leaves such
 * a task to the next one, which deletes tasks without a running container.
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
