/** Pull of a ten-layer image of 500 MB from a registry on loopback, and the memory that it takes. */
import type { Engine } from '../test/support/engine.js';
import { callJson, jsonLines, open } from '../test/support/http.js';
import { timed, type Measure, type Setting } from './measure.js';
import { peakResidentBytes } from './resident-memory.js';

async function pull(engine: Engine, reference: string): Promise<void> {
  const reply = await open(engine.socketPath, 'POST', `/images/create?fromImage=${reference}`);
  let last = '';
  for await (const { status, error } of jsonLines<{ status?: string; error?: string }>(reply.message)) {
    if (error !== undefined) throw new Error(error);
    last = status ?? last;
  }
  if (!/^Status: (?:Downloaded newer image|Image is up to date)/.test(last)) throw new Error(`the pull ended with ${JSON.stringify(last)} (${reply.status})`);
}

export const pullBigImage: Measure = {
  name: 'pull',
  metrics: [
    { name: 'pull 500 MB', unit: 'ms', target: 0.6, moreIsBetter: false },
    { name: 'memory at the peak of the pull', unit: 'MiB', target: 1, moreIsBetter: false },
  ],
  rounds: 5,
  async prepare(engine, setting) {
    const reference = await setting.bigImage();
    return async () => {
      let elapsed = 0;
      const peak = await peakResidentBytes(engine.pid, async () => {
        elapsed = await timed(() => pull(engine, reference));
      });
      await callJson(engine.socketPath, 'DELETE', `/images/${reference}`);
      return { 'pull 500 MB': elapsed, 'memory at the peak of the pull': peak / 2 ** 20 };
    };
  },
};

/** Pulls of images of other shapes, and by many clients at once. */
function shaped(name: string, metric: string, target: number, rounds: number, reference: (setting: Setting) => Promise<string>, clients = 1): Measure {
  return {
    name,
    metrics: [{ name: metric, unit: 'ms', target, moreIsBetter: false }],
    rounds,
    async prepare(engine, setting) {
      const image = await reference(setting);
      return async () => {
        const elapsed = await timed(() => Promise.all(Array.from({ length: clients }, () => pull(engine, image))));
        await callJson(engine.socketPath, 'DELETE', `/images/${image}`);
        return { [metric]: elapsed };
      };
    },
  };
}

export const pullLargeLayer = shaped('pull-large', 'pull one layer of 1 GB', 0.7, 3, (setting) => setting.shapedImage('bench/large-layer'));
export const pullManyFiles = shaped('pull-files', 'pull 20,000 small files', 0.8, 3, (setting) => setting.shapedImage('bench/many-files'));
export const pullByMany = shaped('pull-clients', 'pull 500 MB for 16 clients', 0.6, 3, (setting) => setting.bigImage(), 16);
