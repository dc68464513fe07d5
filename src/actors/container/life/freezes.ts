/**
 * Tells containers that somebody has paused or resumed them, also without asking this daemon. An event may arrive when
 * the next call has already changed the task again, so the task is asked how it is, and the answer is what counts.
 */
import type { Logger } from '../../../ports/logger.js';
import type { TaskService } from '../../../ports/supervisor.js';
import type { ContainerFact } from '../container.messages.js';

export interface FreezesOptions {
  readonly tasks: Pick<TaskService, 'get'>;
  readonly log: Logger;
  readonly tell: (id: string, fact: ContainerFact) => void;
}

export class Freezes {
  /** Containers that are asked for, and whether an event came meanwhile: its answer must not come before the first. */
  readonly #asked = new Map<string, { isOld: boolean }>();

  constructor(private readonly options: FreezesOptions) {}

  /** Call this for each event. There is one question at a time for a container. */
  changed(id: string): void {
    const asked = this.#asked.get(id);
    if (asked) asked.isOld = true;
    else void this.#ask(id).finally(() => this.#asked.delete(id));
  }

  async #ask(id: string): Promise<void> {
    const { tasks, log, tell } = this.options;
    const asked = { isOld: false };
    this.#asked.set(id, asked);
    do {
      asked.isOld = false;
      try {
        const status = (await tasks.get(id))?.status;
        if (status === 'paused') tell(id, { type: 'task.paused' });
        else if (status === 'running') tell(id, { type: 'task.resumed' });
      } catch (error) {
        log.warn({ err: error, container: id }, 'it is not known whether a container is paused');
      }
    } while (asked.isOld);
  }
}
