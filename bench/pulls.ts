/** A hundred pulls at once, of images that have only their lowest layer in common. */
import { buildImage, generatedLayer, pushImage } from '../test/support/image-builder.js';
import { callJson } from '../test/support/http.js';
import { timedWarm, type Measure } from './measure.js';
import { pull } from './pull.js';
import { peakResidentBytes } from './resident-memory.js';

const IMAGES = 100;
const LAYER_BYTES = 500_000;
const LAYER_FILES = 50;

export const pullsAtOnce: Measure = {
  name: 'pulls',
  metrics: [
    { name: '100 pulls at once', unit: 'ms', target: 0.7, moreIsBetter: false },
    { name: 'memory at the peak of 100 pulls', unit: 'MiB', target: 1, moreIsBetter: false },
  ],
  async prepare(engine, { image }) {
    const host = image.slice(0, image.indexOf('/'));
    const layer = (seed: number): ReturnType<typeof generatedLayer> =>
      generatedLayer({ root: `srv-${seed}`, bytes: LAYER_BYTES, files: LAYER_FILES, seed });
    const shared = layer(1000);
    const images: string[] = [];
    for (let index = 0; index < IMAGES; index++) {
      const repository = `bench/many-${index}`;
      const layers = [shared, layer(1001 + 2 * index), layer(1002 + 2 * index)];
      await pushImage(`http://${host}`, repository, '1', buildImage({ layers }));
      images.push(`${host}/${repository}:1`);
    }
    return async () => {
      let elapsed = 0;
      const peak = await peakResidentBytes(engine.pid, async () => {
        elapsed = await timedWarm(() => Promise.all(images.map((reference) => pull(engine, reference))));
      });
      for (const reference of images) await callJson(engine.socketPath, 'DELETE', `/images/${reference}`);
      return { '100 pulls at once': elapsed, 'memory at the peak of 100 pulls': peak / 2 ** 20 };
    };
  },
};
