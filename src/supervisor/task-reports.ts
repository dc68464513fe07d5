/** Passes events of tasks on to whoever listens: an exit only the first time, a lack of memory before its exit. */
import type { Logger } from '../ports/logger.js';
import type { TaskEvent } from '../ports/supervisor.js';
import type { ExitWatch } from './exit-watch.js';

const SIGKILLED = 128 + 9;

export interface TaskReportsOptions {
  readonly logger: Logger;
  readonly exits: ExitWatch;
  /** Tells whether the kernel has killed a process of the task for lack of memory. */
  readonly hadOomKill: (id: string) => Promise<boolean>;
}

export class TaskReports {
  readonly #options: TaskReportsOptions;
  readonly #listeners = new Set<(event: TaskEvent) => void>();
  /** Tasks that were reported to lack memory. */
  readonly #oomed = new Set<string>();

  constructor(options: TaskReportsOptions) {
    this.#options = options;
  }

  onEvent(listener: (event: TaskEvent) => void): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Passes an event on, unless its exit, or that of its task, was reported before. */
  pass(event: TaskEvent): void {
    if (!this.#options.exits.isNews(event)) return;
    if (event.type === 'oom') this.#oomed.add(event.id);
    const isKill = event.type === 'exit' && event.execId === '' && event.exit.exitCode === SIGKILLED;
    if (isKill && !this.#oomed.has(event.id)) void this.#emitKill(event);
    else this.#emit(event);
  }

  /** Passes an exit on when `prepared` resolves. What others report of it meanwhile is no news any more. */
  async passAfter(prepared: () => Promise<void>, exit: TaskEvent): Promise<void> {
    if (!this.#options.exits.isNews(exit)) return;
    await prepared().catch((error: unknown) => {
      this.#options.logger.error({ err: error, event: exit }, 'cannot prepare the report of an exit');
    });
    this.#emit(exit);
  }

  /** Forgets a task that is gone. */
  forget(id: string): void {
    this.#oomed.delete(id);
  }

  /**
   * Reports an exit by SIGKILL, after a lack of memory if that caused it. The shim's own report of that may come later
   * than the exit, but the kernel's counter knows at once.
   */
  async #emitKill(exit: TaskEvent): Promise<void> {
    const isOom = await this.#options.hadOomKill(exit.id).catch(() => false);
    if (isOom) this.#emit({ type: 'oom', id: exit.id });
    this.#emit(exit);
  }

  #emit(event: TaskEvent): void {
    for (const listener of this.#listeners) {
      try {
        listener(event);
      } catch (error) {
        this.#options.logger.error({ err: error, event }, 'a listener for task events failed');
      }
    }
  }
}
