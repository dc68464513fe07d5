/** create + start + wait + remove of /bin/true on the bridge network. */
import { atOnce, lifeOfContainer } from './containers.js';
import { median, timed, type Measure } from './measure.js';

const ALONE = 10;
const AT_ONCE = 16;

export const lifecycle: Measure = {
  name: 'lifecycle',
  metrics: [
    { name: 'one container', unit: 'ms', target: 0.5, moreIsBetter: false },
    { name: '16 at once', unit: 'ms', target: 0.5, moreIsBetter: false },
  ],
  async prepare(engine, { image }) {
    const choice = { image, command: ['/bin/true'] };
    await lifeOfContainer(engine, choice);
    return async () => {
      const alone: number[] = [];
      for (let index = 0; index < ALONE; index++) alone.push(await timed(() => lifeOfContainer(engine, choice)));
      return {
        'one container': median(alone),
        '16 at once': await timed(() => atOnce(AT_ONCE, AT_ONCE, () => lifeOfContainer(engine, choice))),
      };
    };
  },
};
