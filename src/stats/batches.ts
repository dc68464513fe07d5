/** Readings that are asked for at about the same time are made together, because each hand-over to a thread costs. */
import { notFound } from '../errors/engine-error.js';
import type { ContainerUsage, StatsReader, StatsTarget } from '../ports/stats.js';

interface Asked {
  readonly target: StatsTarget;
  readonly resolve: (usage: ContainerUsage) => void;
  readonly reject: (error: unknown) => void;
}

/** While the replies of one batch are made, the thread reads the next one: a batch is a part of what is asked for. */
const MAX_TARGETS = 20;
/** One is read, and one is ready to be read. */
const MAX_BATCHES = 2;

/**
 * Makes a reader of `readAll`, which reads containers one after the other. What is asked for while batches are under
 * way becomes the next ones.
 * @param readAll undefined in a place of its result: that container has ended.
 */
export function batchedStats(
  readAll: (targets: readonly StatsTarget[]) => Promise<readonly (ContainerUsage | undefined)[]>,
): StatsReader {
  const waiting: Asked[] = [];
  let batches = 0;
  const readBatch = async (): Promise<void> => {
    const batch = waiting.splice(0, MAX_TARGETS);
    batches++;
    try {
      const usages = await readAll(batch.map(({ target }) => target)).finally(() => {
        batches--;
        begin();
      });
      for (const [index, { target, resolve, reject }] of batch.entries()) {
        const usage = usages[index];
        if (usage === undefined) reject(notFound(`no statistics for container ${target.id}: it has ended`));
        else resolve(usage);
      }
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
  };
  const begin = (): void => {
    if (waiting.length > 0 && batches < MAX_BATCHES) void readBatch();
  };
  return {
    read: (target) =>
      new Promise((resolve, reject) => {
        waiting.push({ target, resolve, reject });
        begin();
      }),
  };
}
