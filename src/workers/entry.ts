/** First module of every worker thread: loads a task when it is first asked for, so that a thread starts light. */
import { collectLeft } from './buffer-collector.js';
import { failure, type Outcome } from './outcome.js';
import { tasks, type TaskName } from './tasks.js';

export async function run({ task, input }: { readonly task: TaskName; readonly input: unknown }): Promise<Outcome> {
  try {
    const load: () => Promise<(input: never) => unknown> = tasks[task];
    const perform = await load();
    return { ok: true, value: await perform(input as never) };
  } catch (error) {
    return failure(error);
  } finally {
    collectLeft();
  }
}
