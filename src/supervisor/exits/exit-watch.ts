/**
 * Knows which processes were started and have not been reported as ended. The event stream reports exits. After it
 * broke, the state of each process that is still awaited tells what was missed. Each exit is passed on once.
 */
import type { TaskEvent } from '../../ports/supervisor.js';

/** A process of a task; `execId` is '' for init. */
export interface ProcessRef {
  readonly id: string;
  readonly execId: string;
}

export class ExitWatch {
  /** Awaited processes by task: true once the exit was reported, so that a second report is dropped. */
  readonly #tasks = new Map<string, Map<string, boolean>>();

  /** Awaits a process. Call it before the process can exit. */
  add({ id, execId }: ProcessRef): void {
    const processes = this.#tasks.get(id) ?? new Map<string, boolean>();
    this.#tasks.set(id, processes.set(execId, false));
  }

  has({ id, execId }: ProcessRef): boolean {
    return this.#tasks.get(id)?.has(execId) === true;
  }

  /** Tells whether the exit of a known process was not reported yet. */
  isAwaited({ id, execId }: ProcessRef): boolean {
    return this.#tasks.get(id)?.get(execId) === false;
  }

  /** Does the same as `add`, but a known process stays as it is. */
  ensure(process: ProcessRef): void {
    if (!this.has(process)) this.add(process);
  }

  /** Forgets an exec process or, with the init process, the whole task. */
  remove({ id, execId }: ProcessRef): void {
    if (execId === '') this.#tasks.delete(id);
    else this.#tasks.get(id)?.delete(execId);
  }

  /**
   * True for an event that was not reported before. Exits of unknown processes count as new. After the exit of a task,
   * none of its events do.
   */
  isNews(event: TaskEvent): boolean {
    if (event.type !== 'exit') return this.#tasks.get(event.id)?.get('') !== true;
    const processes = this.#tasks.get(event.id);
    const isReported = processes?.get(event.execId);
    if (isReported === false) processes?.set(event.execId, true);
    return isReported !== true;
  }

  /** Returns the processes whose exit was not reported yet, execs before the init process of their task. */
  awaited(): ProcessRef[] {
    return [...this.#tasks].flatMap(([id, processes]) =>
      [...processes]
        .filter(([, isReported]) => !isReported)
        .map(([execId]) => ({ id, execId }))
        .sort((a, b) => b.execId.length - a.execId.length),
    );
  }
}
