/** A daemon with 1000 stopped containers: listing them, and starting one more. */
import { call } from '../test/support/http.js';
import { atOnce, createContainer, removeContainer, startContainer, waitContainer } from './containers.js';
import { median, timed, type Measure } from './measure.js';

const CONTAINERS = 1000;
const TIMES = 10;
/** This is measured once, and all samples are compared with it. */
const TIMES_ALONE = 40;

export const stopped: Measure = {
  name: 'stopped',
  metrics: [
    { name: 'ps -a with 1000 stopped', unit: 'ms', target: 0.3, moreIsBetter: false },
    { name: 'create and start with none', unit: 'ms', target: 0.6, moreIsBetter: false },
    { name: 'create and start with 1000 stopped', unit: 'ms', target: 0.6, moreIsBetter: false },
    { name: 'the same, by that with none', unit: 'times', target: 1.05, moreIsBetter: false, isAbsolute: true },
    { name: 'daemon starts with 1000 stopped', unit: 'ms', target: 0.3, moreIsBetter: false },
  ],
  async prepare(engine, { image }) {
    const choice = { image, command: ['/bin/true'] };
    const createAndStart = async (count: number): Promise<number> => {
      const times: number[] = [];
      for (let index = 0; index < count; index++) {
        let id = '';
        times.push(
          await timed(async () => {
            id = await createContainer(engine, choice);
            await startContainer(engine, id);
          }),
        );
        await waitContainer(engine, id);
        await removeContainer(engine, id);
      }
      return median(times);
    };
    // The first ones of a daemon are slower, whatever it has, and it is started anew in each sample.
    const warm = async (): Promise<unknown> => createAndStart(TIMES);
    await warm();
    const alone = await createAndStart(TIMES_ALONE);
    await atOnce(CONTAINERS, 4, () => createContainer(engine, { ...choice, network: 'none' }));
    return async () => {
      const times: number[] = [];
      for (let index = 0; index < TIMES; index++) {
        times.push(
          await timed(async () => {
            const { status } = await call(engine.socketPath, 'GET', '/containers/json?all=1');
            if (status !== 200) throw new Error(`the list gave ${status}`);
          }),
        );
      }
      await warm();
      const among = await createAndStart(TIMES);
      await engine.stop();
      const restart = await timed(() => engine.start());
      return {
        'ps -a with 1000 stopped': median(times),
        'create and start with none': alone,
        'create and start with 1000 stopped': among,
        'the same, by that with none': among / alone,
        'daemon starts with 1000 stopped': restart,
      };
    };
  },
};
