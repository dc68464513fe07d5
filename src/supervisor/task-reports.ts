/** Passes events of tasks on to whoever listens: an exit only the first time, a lack of memory before its exit. */
import type { Logger } from '../ports/logger.js';
import type { TaskEvent } from '../ports/supervisor.js';
import type { ExitWatch } from './exits/exit-watch.js';
import type { KeptInits } from './exits/kept-inits.js';
import { hadOomKill } from './metrics.js';
import type { TaskLookup } from './task-lookup.js';

const SIGKILLED = 128 + 9;
/** For a read that holds up the report of an exit. */
const OOM_TIMEOUT_MS = 1_000;

export interface TaskReportsOptions {
  readonly logger: Logger;
  readonly exits: ExitWatch;
  /** Exits that the kernel knows. */
  readonly kept?: KeptInits | undefined;
  readonly lookup: Pick<TaskLookup, 'metrics'>;
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

  /** Passes the exit of a task on, as `pass` does it, with the code that the kernel knows. */
  passEnd(event: TaskEvent & { readonly type: 'exit' }): void {
    const { kept } = this.#options;
    const pass = (exitCode = event.exit.exitCode): void => this.pass({ ...event, exit: { ...event.exit, exitCode } });
    const exitCode = kept?.exitCode(event.id);
    // A shim waits for the process before it tells its exit: else containerd guesses, as the shim is gone.
    if (exitCode === undefined && kept?.has(event.id) === true) void kept.exitCodeSoon(event.id).then(pass);
    else pass(exitCode);
  }

  /** Passes an exit on as `prepared` tells it. What others report of it meanwhile is no news any more. */
  async passAfter(prepared: () => Promise<TaskEvent>, exit: TaskEvent): Promise<void> {
    if (!this.#options.exits.isNews(exit)) return;
    const known = await prepared().catch((error: unknown) => {
      this.#options.logger.error({ err: error, event: exit }, 'cannot prepare the report of an exit');
      return exit;
    });
    this.#emit(known);
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
    const isOom = await this.#options.lookup.metrics(exit.id, OOM_TIMEOUT_MS).then(hadOomKill, () => false);
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
