/** Reports exits that nobody tells, as the shim has lost them, or was lost itself. */
import type { Logger } from '../../ports/logger.js';
import type { TaskEvent } from '../../ports/supervisor.js';
import { exitStatus, UNKNOWN_EXIT_CODE } from './exit-status.js';
import type { ExitWatch, ProcessRef } from './exit-watch.js';
import { Status, type Process } from '../proto/gen/task_types_pb.js';
import type { TaskLookup, Witnesses } from '../task-lookup.js';
import type { TaskReports } from '../task-reports.js';

/** The exit code of a task that is killed because its shim has ended. */
const KILLED = 128 + 9;

export interface LostExitsOptions extends Witnesses {
  readonly logger: Logger;
  readonly lookup: TaskLookup;
  readonly exits: ExitWatch;
  readonly reports: TaskReports;
  /** Reports an exit as if containerd had told it. */
  readonly report: (event: TaskEvent) => void;
  /** Ends the shim of a task, and with it the task. */
  readonly endShim: (id: string) => Promise<void>;
  /** Ends a task that has no shim any more, and removes what is left of it. */
  readonly remove: (id: string) => Promise<void>;
  /** Ends the watch of the init process of a task. */
  readonly unwatch: (id: string) => void;
}

export class LostExits {
  readonly #options: LostExitsOptions;

  constructor(options: LostExitsOptions) {
    this.#options = options;
  }

  /** Reports the exit of a task whose process has ended, if containerd knows it; returns whether it is reported. */
  async hasTold(id: string): Promise<boolean> {
    const { exits, lookup } = this.#options;
    const init = { id, execId: '' };
    if (!exits.has(init)) return true;
    const found = await lookup.find(init);
    if (found !== undefined && found.status !== Status.STOPPED) return false;
    this.reportFound(init, found);
    return true;
  }

  /** Ends a task whose shim has lost its exit. */
  async end(id: string): Promise<void> {
    const { logger, endShim } = this.#options;
    logger.warn({ id }, 'the shim does not tell the exit of a task whose process has ended; ending the shim');
    await this.#reportWhen(id, () => endShim(id));
  }

  /**
   * Ends a task whose shim has ended, where containerd does not notice that, and reports the exit. The shim may have
   * told the exit of the task before: that arrives while the task is removed, and counts then.
   */
  async shimEnded(id: string): Promise<void> {
    const { logger, heard, remove, report } = this.#options;
    logger.warn({ id }, 'the shim of a task has ended; ending the task');
    await remove(id).catch((error: unknown) =>
      logger.error({ id, err: error }, 'a task without a shim is not removed'),
    );
    const told = heard.get({ id, execId: '' });
    report({ type: 'exit', id, execId: '', pid: 0, exit: exitStatus(told?.exitStatus ?? KILLED, told?.exitedAt) });
  }

  /** Reports the exit of a process as it was found; undefined when containerd does not know the process. */
  reportFound({ id, execId }: ProcessRef, found: Process | undefined): void {
    const { kept, remove, report } = this.#options;
    if (found === undefined && execId === '' && kept?.has(id) === true)
      return void this.#reportWhen(id, () => remove(id));
    const exit = exitStatus(found?.exitStatus ?? UNKNOWN_EXIT_CODE, found?.exitedAt);
    report({ type: 'exit', id, execId, pid: found?.pid ?? 0, exit });
  }

  /**
   * Reports an exit that nobody tells, with the code that the kernel knows. The process may live as long as `end` has
   * not ended it; then somebody else becomes its parent, and waits for it.
   */
  async #reportWhen(id: string, end: () => Promise<void>): Promise<void> {
    const { kept, reports, unwatch } = this.#options;
    unwatch(id);
    const exit = { type: 'exit', id, execId: '', pid: 0, exit: exitStatus(UNKNOWN_EXIT_CODE, undefined) } as const;
    const ended = async (): Promise<TaskEvent> => {
      await end();
      const exitCode = (await kept?.exitCodeSoon(id)) ?? UNKNOWN_EXIT_CODE;
      return { ...exit, exit: { ...exit.exit, exitCode } };
    };
    await reports.passAfter(ended, exit);
  }
}
