/** A container's processes are frozen. */
import type { TaskService } from '../../../ports/supervisor.js';
import { unlessAborted } from '../../kit/pace.js';
import type { ContainerDeps } from '../deps.js';
import { whileRunning } from '../life/ended-task.js';

const PAUSE_TRIES = 3;

/** Freezes a running container, when no other one is being frozen that must not be. */
export function pauseContainer(
  { tasks, pauseGate }: Pick<ContainerDeps, 'tasks' | 'pauseGate'>,
  id: string,
  signal: AbortSignal,
): Promise<void> {
  const paused = pauseGate.pause(id, () => unlessAborted(signal, pause(tasks, id)));
  return whileRunning(tasks, id, paused);
}

/** Runtimes give up freezing cgroup v1 when the host is busy; another try is all it takes. */
async function pause(tasks: TaskService, id: string): Promise<void> {
  for (let triesLeft = PAUSE_TRIES; ;) {
    try {
      return await tasks.pause(id);
    } catch (error) {
      if (--triesLeft === 0 || (await tasks.get(id))?.status !== 'running') throw error;
    }
  }
}
