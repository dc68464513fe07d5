/** The process of a RUN: made, started, heard and waited for. */
import { isEngineError } from '../../../errors/engine-error.js';
import type { CreateTask, ProcessStdio, TaskService } from '../../../ports/supervisor.js';
import { allDone, type Undo } from '../../container/life/undo.js';
import { taskExit } from '../../kit/task-exit.js';
import type { SharedShim } from './shared-shim.js';
import { OutputPump, type StepOutput } from './step-output.js';

/** The exit code of a process that the runtime could not start. */
const NOT_STARTED = 1;
const SIGKILL = 9;

export interface StepProcess {
  readonly task: Omit<CreateTask, 'stdio'>;
  readonly shim: SharedShim;
  /** The runtime is one for this step. */
  readonly isAlone: boolean;
  readonly stdio: ProcessStdio;
  readonly output: StepOutput;
  /** Works at the same time as the runtime. */
  readonly join: (created: Promise<{ readonly pid: number }>) => Promise<void>;
  /** Called when it runs. */
  readonly started: () => void;
}

/**
 * Returns the exit code when the process has ended and all that it has written was taken. A process that cannot be
 * started says why on its standard error. `undo` removes what is left of it.
 * @throws the signal's reason when it is cancelled; then the process is dead as well.
 */
export async function runProcess(
  tasks: TaskService,
  { task, shim, isAlone, stdio, output, join, started }: StepProcess,
  undo: Undo,
  signal: AbortSignal,
): Promise<number> {
  const { id } = task;
  const exit = taskExit(tasks, id);
  const kill = (): void => void tasks.kill(id, SIGKILL, { all: true }).catch(() => undefined);
  try {
    undo.add('task', () => shim.delete(id));
    const created = shim.create({ ...task, stdio: stdio.paths }, isAlone);
    await allDone([created, join(created)]);
    signal.throwIfAborted();
    const pump = new OutputPump(stdio, output);
    await tasks.start(id);
    started();
    signal.addEventListener('abort', kill, { once: true });
    if (signal.aborted) kill();
    const exitCode = await exit.code;
    await pump.drained();
    signal.throwIfAborted();
    return exitCode;
  } catch (error) {
    if (signal.aborted || !isRefused(error)) throw error;
    await output(2, Buffer.from(`runc run failed: ${reasonIn(error.message)}\n`));
    return NOT_STARTED;
  } finally {
    signal.removeEventListener('abort', kill);
    exit.forget();
  }
}

/** Tells whether the runtime has refused to start the program, which is the step's own mistake. */
function isRefused(error: unknown): error is Error {
  return isEngineError(error) && error.details['runtimeError'] === true;
}

/** Returns what the runtime says, without the words of those who have called it. */
function reasonIn(message: string): string {
  const at = message.indexOf('unable to start container process');
  return at < 0 ? message : message.slice(at);
}
