/** Removal of an image of a hundred layers, each with a hundred small files, as long as the client waits for it. */
import { callJson } from '../test/support/http.js';
import { timed, type Measure } from './measure.js';
import { pull } from './pull.js';

export const removeManyLayers: Measure = {
  name: 'remove-layers',
  metrics: [{ name: 'remove 100 layers', unit: 'ms', target: 1, moreIsBetter: false }],
  async prepare(engine, setting) {
    const image = await setting.shapedImage('bench/many-layers');
    return async () => {
      await pull(engine, image);
      const elapsed = await timed(() => callJson(engine.socketPath, 'DELETE', `/images/${image}`));
      return { 'remove 100 layers': elapsed };
    };
  },
};
