/** Readings that are asked for at about the same time are made together, because each hand-over to a thread costs. */
import { notFound } from '../errors/engine-error.js';
import type { ContainerUsage, StatsReader, StatsTarget } from '../ports/stats.js';

interface Asked {
  readonly target: StatsTarget;
  readonly resolve: (usage: ContainerUsage) => void;
  readonly reject: (error: unknown) => void;
}

/** Bounds how long one reading holds its thread. */
const MAX_TARGETS = 100;

/**
 * Makes a reader of `readAll`, which reads containers one after the other. What is asked for while a batch is under way
 * becomes the next one.
 * @param readAll undefined in a place of its result: that container has ended.
 */
export function batchedStats(
  readAll: (targets: readonly StatsTarget[]) => Promise<readonly (ContainerUsage | undefined)[]>,
): StatsReader {
  const waiting: Asked[] = [];
  let isReading = false;
  const readBatch = async (): Promise<void> => {
    const batch = waiting.splice(0, MAX_TARGETS);
    try {
      const usages = await readAll(batch.map(({ target }) => target));
      for (const [index, { target, resolve, reject }] of batch.entries()) {
        const usage = usages[index];
        if (usage === undefined) reject(notFound(`no statistics for container ${target.id}: it has ended`));
        else resolve(usage);
      }
    } catch (error) {
      for (const { reject } of batch) reject(error);
    }
  };
  const work = async (): Promise<void> => {
    isReading = true;
    while (waiting.length > 0) await readBatch();
    isReading = false;
  };
  return {
    read: (target) =>
      new Promise((resolve, reject) => {
        waiting.push({ target, resolve, reject });
        if (!isReading) void work();
      }),
  };
}
