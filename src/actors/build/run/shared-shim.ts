/**
 * The shim of the RUNs of a build. To start one and to end it takes a third of the processor time of a short RUN, so
 * the first task that is made keeps its shim until the build ends, and the tasks after it are served by that one, too.
 * Those that are made at the same time as the first have their own.
 * Where shims serve one task after another anyway, nothing has to be kept for that.
 */
import type { CreatedTask, CreateTask, TaskService } from '../../../ports/supervisor.js';

export class SharedShim {
  /** The first task. It is deleted after the last one was made, so its shim never ends while another one is made. */
  #keeper: string | undefined;
  #end: Promise<void> | undefined;

  constructor(private readonly tasks: Pick<TaskService, 'create' | 'delete'>) {}

  /**
   * @param isAlone gives it its own shim, as its runtime ends with its step, or wants to be called in its directory: a
   * shim calls each one in that of its first task.
   */
  async create(task: CreateTask, isAlone: boolean): Promise<CreatedTask> {
    if (isAlone) return this.tasks.create(task);
    const made = await this.tasks.create({ ...task, shimOf: this.#keeper });
    if (!made.hasReusedShim) this.#keeper ??= task.id;
    return made;
  }

  /** Deletes a task, or has it deleted in the end. */
  async delete(id: string): Promise<void> {
    if (id !== this.#keeper) await this.tasks.delete(id);
  }

  /** Deletes the first task, once. No task may be made afterwards. */
  end(): Promise<void> {
    if (this.#end === undefined) {
      this.#end = this.#keeper === undefined ? Promise.resolve() : this.tasks.delete(this.#keeper);
      this.#end.catch(() => undefined);
    }
    return this.#end;
  }
}
