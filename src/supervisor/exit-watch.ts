/**
 * Which processes were started and whose exit was not reported yet. The event stream is the source of exits; after it
 * broke, the state of each process that is still awaited tells what was missed. Each exit passes once.
 */
import type { TaskEvent } from '../ports/supervisor.js';

/** A process of a task; `execId` is '' for init. */
export interface ProcessRef {
  readonly id: string;
  readonly execId: string;
}

export class ExitWatch {
  /** Awaited processes by task: true once the exit was reported, so that a second report is dropped. */
  readonly #tasks = new Map<string, Map<string, boolean>>();

  /** Call it before the process can exit. */
  add({ id, execId }: ProcessRef): void {
    const processes = this.#tasks.get(id) ?? new Map<string, boolean>();
    this.#tasks.set(id, processes.set(execId, false));
  }

  has({ id, execId }: ProcessRef): boolean {
    return this.#tasks.get(id)?.has(execId) === true;
  }

  /** As `add`, but a process that is known stays as it is. */
  ensure(process: ProcessRef): void {
    if (!this.has(process)) this.add(process);
  }

  /** Forgets an exec process or, with the init process, the whole task. */
  remove({ id, execId }: ProcessRef): void {
    if (execId === '') this.#tasks.delete(id);
    else this.#tasks.get(id)?.delete(execId);
  }

  /**
   * True for an event that was not reported before. Exits of unknown processes pass: somebody may want them. Nothing
   * else passes about a task after its exit.
   */
  isNews(event: TaskEvent): boolean {
    if (event.type !== 'exit') return this.#tasks.get(event.id)?.get('') !== true;
    const processes = this.#tasks.get(event.id);
    const isReported = processes?.get(event.execId);
    if (isReported === false) processes?.set(event.execId, true);
    return isReported !== true;
  }

  /** Processes whose exit was not reported yet, execs before the init process of their task. */
  awaited(): ProcessRef[] {
    return [...this.#tasks].flatMap(([id, processes]) =>
      [...processes]
        .filter(([, isReported]) => !isReported)
        .map(([execId]) => ({ id, execId }))
        .sort((a, b) => b.execId.length - a.execId.length),
    );
  }
}
