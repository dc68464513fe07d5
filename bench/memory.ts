/** Resident memory of daemon and supervisor, idle and with 50 running containers. */
import { setTimeout as sleep } from 'node:timers/promises';
import { atOnce, createContainer, removeContainer, startContainer } from './containers.js';
import type { Measure } from './measure.js';
import { residentBytes } from './resident-memory.js';

const CONTAINERS = 50;
const SETTLE_MS = 7000;

export const memory: Measure = {
  name: 'memory',
  metrics: [
    { name: 'memory idle', unit: 'MiB', target: 1, moreIsBetter: false },
    { name: 'memory with 50 containers', unit: 'MiB', target: 1, moreIsBetter: false },
  ],
  async prepare(engine, { image }) {
    return async () => {
      await engine.stop();
      await engine.start();
      await sleep(SETTLE_MS);
      const idle = residentBytes(engine.pid);
      const ids: string[] = [];
      await atOnce(CONTAINERS, 4, async () => {
        const id = await createContainer(engine, { image, command: ['sleep', '1000'] });
        await startContainer(engine, id);
        ids.push(id);
      });
      await sleep(SETTLE_MS);
      const busy = residentBytes(engine.pid);
      await atOnce(CONTAINERS, 4, () => removeContainer(engine, ids.pop() ?? ''));
      return { 'memory idle': idle / 2 ** 20, 'memory with 50 containers': busy / 2 ** 20 };
    };
  },
};
