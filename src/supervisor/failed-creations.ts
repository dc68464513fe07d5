/** Creations of tasks that failed or broke off. Whatever they left is removed, at once or when containerd is back. */
import { isEngineError, messageOf } from '../errors/engine-error.js';
import type { Logger } from '../ports/logger.js';
import { removeGroups, type UnbornTask } from './unborn-tasks.js';

interface FailedCreationsOptions {
  readonly logger: Logger;
  /**
   * Deletes a task as far as containerd and its shim know it. A running one is not of our making, and refuses.
   * @param isBroken says that the creation broke off with the connection.
   */
  readonly remove: (id: string, isBroken: boolean) => Promise<void>;
}

export class FailedCreations {
  readonly #options: FailedCreationsOptions;
  /** Those that broke off with the connection, by ID. They are removed when the next one is up. */
  readonly #brokenOff = new Map<string, UnbornTask>();
  /** Removals that are under way. */
  readonly #removals = new Map<string, Promise<void>>();

  constructor(options: FailedCreationsOptions) {
    this.#options = options;
  }

  /** Notes a creation that broke off with the connection. */
  breakOff(task: UnbornTask): void {
    this.#brokenOff.set(task.id, task);
  }

  /** Removes what an earlier creation left, if there is anything. Call it before the next one of this ID. */
  async clear(id: string): Promise<void> {
    const task = this.#brokenOff.get(id);
    await (task === undefined ? this.#removals.get(id) : this.remove(task));
  }

  async clearAll(): Promise<void> {
    for (const task of Array.from(this.#brokenOff.values())) await this.remove(task);
  }

  /**
   * Removes whatever a failed creation left. A failed Create of a task leaves none, but the control groups if its
   * runtime was killed; a broken connection may leave a created one, which can be deleted.
   */
  remove(task: UnbornTask): Promise<void> {
    const { id } = task;
    const removal = this.#removals.get(id) ?? this.#removeOnce(task).finally(() => this.#removals.delete(id));
    this.#removals.set(id, removal);
    return removal;
  }

  async #removeOnce(task: UnbornTask): Promise<void> {
    const { id } = task;
    const isBroken = this.#brokenOff.delete(id);
    try {
      await this.#options.remove(id, isBroken);
      await removeGroups([task]);
    } catch (error) {
      if (isEngineError(error, 'unavailable')) this.#brokenOff.set(id, task);
      else this.#options.logger.warn({ id, reason: messageOf(error) }, 'cannot remove what a failed creation left');
    }
  }
}
