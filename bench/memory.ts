/** Resident memory of daemon and supervisor, idle and with containers that run. */
import { setTimeout as sleep } from 'node:timers/promises';
import { atOnce, createContainer, removeContainer, startContainer } from './containers.js';
import type { Measure } from './measure.js';
import { residentBytes } from './resident-memory.js';

const SETTLE_MS = 7000;

export const memory: Measure = memoryWith('memory', 50);
/** The shims of so many take some 6 GiB, and their starts minutes. */
export const memoryOfMany: Measure = { ...memoryWith('memory-of-many', 500), isForRequest: true };

function memoryWith(name: string, containers: number): Measure {
  const [idleName, busyName] = ['memory idle', `memory with ${containers} containers`];
  return {
    name,
    metrics: [idleName, busyName].map((metric) => ({ name: metric, unit: 'MiB', target: 1, moreIsBetter: false })),
    async prepare(engine, { image }) {
      return async () => {
        await engine.stop();
        await engine.start();
        await sleep(SETTLE_MS);
        const idle = residentBytes(engine.pid);
        const ids: string[] = [];
        await atOnce(containers, 4, async () => {
          const id = await createContainer(engine, { image, command: ['sleep', '1000'] });
          await startContainer(engine, id);
          ids.push(id);
        });
        await sleep(SETTLE_MS);
        const busy = residentBytes(engine.pid);
        await atOnce(containers, 4, () => removeContainer(engine, ids.pop() ?? ''));
        return { [idleName]: idle / 2 ** 20, [busyName]: busy / 2 ** 20 };
      };
    },
  };
}
