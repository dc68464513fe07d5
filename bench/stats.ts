/** One reading of each of 100 running containers, asked for at once. */
import { callJson } from '../test/support/http.js';
import { atOnce, createContainer, startContainer } from './containers.js';
import { median, timed, type Measure } from './measure.js';

const CONTAINERS = 100;
const TIMES = 3;

export const stats: Measure = {
  name: 'stats',
  metrics: [{ name: 'stats of 100 containers', unit: 'ms', target: 0.5, moreIsBetter: false }],
  async prepare(engine, { image }) {
    const ids: string[] = [];
    await atOnce(CONTAINERS, 4, async () => {
      const id = await createContainer(engine, { image, command: ['sleep', '100000'] });
      await startContainer(engine, id);
      ids.push(id);
    });
    const readAll = async (): Promise<void> => {
      const found = await Promise.all(
        ids.map((id) =>
          callJson<{ memory_stats: { usage: number } }>(
            engine.socketPath,
            'GET',
            `/containers/${id}/stats?stream=0&one-shot=1`,
          ),
        ),
      );
      if (found.some(({ memory_stats }) => !(memory_stats.usage > 0))) throw new Error('a reading is empty');
    };
    await readAll();
    return async () => {
      const times: number[] = [];
      for (let index = 0; index < TIMES; index++) times.push(await timed(readAll));
      return { 'stats of 100 containers': median(times) };
    };
  },
};
