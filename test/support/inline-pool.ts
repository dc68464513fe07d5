/** Stands for the worker pool in tests of what uses it: tasks run on the main thread. */
import type { WorkerPool } from '../../src/workers/pool.js';
import { tasks } from '../../src/workers/tasks.js';

export const inlinePool: Pick<WorkerPool, 'run'> = {
  run: async (name, input) => {
    const task = (await tasks[name]()) as (given: unknown) => unknown;
    return (await task(input)) as never;
  },
};
