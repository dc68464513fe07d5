/** First module of every worker thread: loads a task when it is first asked for, so that a thread starts light. */
import { cancelled } from '../errors/engine-error.js';
import { begin, end, type Life } from '../sys/ffi/unkilled.js';
import { collectLeft } from './buffer-collector.js';
import { failure, type Outcome } from './outcome.js';
import { taskBegins, taskEnds } from './rest.js';
import { tasks, type TaskName } from './tasks.js';

export interface Order {
  readonly task: TaskName;
  readonly input: unknown;
  /** Shared with who may kill the thread. */
  readonly life: Life;
  /** Its pool keeps the thread for the next task of the same kind. */
  readonly isKept: boolean;
}

export async function run({ task, input, life, isKept }: Order): Promise<Outcome> {
  taskBegins();
  try {
    const load: () => Promise<(input: never) => unknown> = tasks[task];
    const perform = await begin(life, load);
    if (perform === undefined) throw cancelled('the task was given up');
    return { ok: true, value: await perform(input as never) };
  } catch (error) {
    return failure(error);
  } finally {
    end(life);
    collectLeft();
    taskEnds(isKept);
  }
}
