/** Calls on a task that may end under way: whatever the runtime makes of that, to clients it is one thing. */
import { conflict, isEngineError, type EngineError } from '../../../errors/engine-error.js';
import type { TaskService } from '../../../ports/supervisor.js';

/** `call` on the task of a container. @throws EngineError conflict when it fails because the container has ended. */
export async function whileRunning<T>(tasks: TaskService, id: string, call: Promise<T>): Promise<T> {
  try {
    return await call;
  } catch (error) {
    if (await hasEnded(tasks, id)) throw notRunning(id);
    throw error;
  }
}

/** Lets a paused task go on. One that was thawed by somebody else, or has ended, is fine. */
export async function thaw(tasks: TaskService, id: string): Promise<void> {
  await tasks.resume(id).catch(async (error: unknown) => {
    // The runtime itself thaws what it sends SIGKILL to; the shim takes it for paused until it has seen the end.
    if (isEngineError(error, 'conflict')) return;
    const task = await tasks.get(id);
    if (task?.status === 'paused' || task?.status === 'pausing') throw error;
  });
}

/**
 * As a client asks for it. One that somebody else has thawed meanwhile is what the client wants. @throws EngineError
 * conflict as `whileRunning`.
 */
export function unpause(tasks: TaskService, id: string): Promise<void> {
  const resumed = tasks.resume(id).catch(async (error: unknown) => {
    if ((await tasks.get(id))?.status !== 'running') throw error;
  });
  return whileRunning(tasks, id, resumed);
}

/** False also when the supervisor cannot be asked. */
async function hasEnded(tasks: TaskService, id: string): Promise<boolean> {
  try {
    const task = await tasks.get(id);
    return task === undefined || task.status === 'stopped';
  } catch {
    // It is the first failure that counts.
    return false;
  }
}

export function notRunning(id: string): EngineError {
  return conflict(`container ${id} is not running`, { code: 'CONTAINER_NOT_RUNNING' });
}
