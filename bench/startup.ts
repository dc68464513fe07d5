/** Time from the start of the process until _ping and a list of 200 stopped containers are answered. */
import { callJson } from '../test/support/http.js';
import { atOnce, createContainer, startContainer, waitContainer } from './containers.js';
import { timed, type Measure } from './measure.js';

const CONTAINERS = 200;

export const startup: Measure = {
  name: 'startup',
  metrics: [{ name: 'start with 200 containers', unit: 'ms', target: 0.5, moreIsBetter: false }],
  async prepare(engine, { image }) {
    await atOnce(CONTAINERS, 4, async () => {
      const id = await createContainer(engine, { image, command: ['/bin/true'], network: 'none' });
      await startContainer(engine, id);
      await waitContainer(engine, id);
    });
    return async () => {
      await engine.stop();
      const elapsed = await timed(async () => {
        await engine.start();
        const list = await callJson<unknown[]>(engine.socketPath, 'GET', '/containers/json?all=1');
        if (list.length !== CONTAINERS) throw new Error(`the list has ${list.length} of ${CONTAINERS} containers`);
      });
      return { 'start with 200 containers': elapsed };
    };
  },
};
