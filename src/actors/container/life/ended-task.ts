/**
 * Calls on a task that may end during the call. Runtimes report that in several ways; clients always get the same
 * error.
 */
import { conflict, isEngineError, type EngineError } from '../../../errors/engine-error.js';
import type { TaskService } from '../../../ports/supervisor.js';

/**
 * Awaits a call on the task of a container.
 * @throws EngineError conflict when it fails because the container has ended.
 */
export async function whileRunning<T>(tasks: TaskService, id: string, call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (error) {
    if (await hasEnded(tasks, id)) throw notRunning(id);
    throw error;
  }
}

/** Lets a paused task go on. It is no failure when somebody else has thawed it, or when it has ended. */
export async function thaw(tasks: TaskService, id: string): Promise<void> {
  await tasks.resume(id).catch(async (error: unknown) => {
    // The runtime itself thaws a task to which it sends SIGKILL. The shim takes the task for paused until it has seen
    // its end.
    if (isEngineError(error, 'conflict')) return;
    const task = await tasks.get(id);
    if (task?.status === 'paused' || task?.status === 'pausing') throw error;
  });
}

/**
 * Lets a paused task go on for a client. It is no failure when somebody else has thawed it meanwhile.
 * @throws EngineError conflict as `whileRunning`.
 */
export function unpause(tasks: TaskService, id: string): Promise<void> {
  const resumed = tasks.resume(id).catch(async (error: unknown) => {
    if ((await tasks.get(id))?.status !== 'running') throw error;
  });
  return whileRunning(tasks, id, resumed);
}

/** Returns true when a task has ended; false also when the supervisor cannot be asked. */
async function hasEnded(tasks: TaskService, id: string): Promise<boolean> {
  try {
    const task = await tasks.get(id);
    return task === undefined || task.status === 'stopped';
  } catch {
    // The caller throws the failure that came first.
    return false;
  }
}

export function notRunning(id: string, details: EngineError['details'] = {}): EngineError {
  return conflict(`container ${id} is not running`, { code: 'CONTAINER_NOT_RUNNING', details });
}
