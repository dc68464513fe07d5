/** Freezes the processes of a container. */
import type { TaskService } from '../../../ports/supervisor.js';
import { unlessAborted } from '../../kit/pace.js';
import type { ContainerDeps } from '../deps.js';
import { whileRunning } from '../life/ended-task.js';

const PAUSE_TRIES = 3;

/** Freezes a running container after the starts of execs that are under way. */
export function pauseContainer(
  { tasks, pauseGate }: Pick<ContainerDeps, 'tasks' | 'pauseGate'>,
  id: string,
  signal: AbortSignal,
): Promise<void> {
  const paused = pauseGate.pause(id, () => unlessAborted(signal, pause(tasks, id)));
  return whileRunning(tasks, id, paused);
}

/** Freezes a task. Runtimes give up freezing cgroup v1 when the host is busy, so it is tried again. */
async function pause(tasks: TaskService, id: string): Promise<void> {
  for (let triesLeft = PAUSE_TRIES; ;) {
    try {
      return await tasks.pause(id);
    } catch (error) {
      if (--triesLeft === 0 || (await tasks.get(id))?.status !== 'running') throw error;
    }
  }
}
