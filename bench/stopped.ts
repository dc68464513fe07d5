/** A daemon with 1000 stopped containers: listing them, and starting one more, beside a daemon with none. */
import type { Engine } from '../test/support/engine.js';
import { call } from '../test/support/http.js';
import { atOnce, createContainer, removeContainer, startContainer, waitContainer } from './containers.js';
import { median, timed, type Measure } from './measure.js';

const CONTAINERS = 1000;
const LISTS = 10;
/** The first ones of a daemon are slower, whatever it has, and both are started anew in each sample. */
const WARM_STARTS = 10;
const STARTS = 20;

async function list(engine: Engine): Promise<void> {
  const { status } = await call(engine.socketPath, 'GET', '/containers/json?all=1');
  if (status !== 200) throw new Error(`the list gave ${status}`);
}

/** Milliseconds that a container of each engine takes to be created and started; then it is removed. */
async function inTurns(engines: readonly Engine[], image: string, count: number): Promise<number[]> {
  const times = new Map(engines.map((engine) => [engine, [] as number[]]));
  for (let turn = 0; turn < count; turn++) {
    // Each follows itself as often as another one, which may still be busy with a removal.
    for (const engine of turn % 2 === 0 ? engines : engines.toReversed()) {
      let id = '';
      const time = await timed(async () => {
        id = await createContainer(engine, { image, command: ['/bin/true'] });
        await startContainer(engine, id);
      });
      times.get(engine)?.push(time);
      await waitContainer(engine, id);
      await removeContainer(engine, id);
    }
  }
  return [...times.values()].map(median);
}

export const stopped: Measure = {
  name: 'stopped',
  metrics: [
    { name: 'ps -a with 1000 stopped', unit: 'ms', target: 0.3, moreIsBetter: false },
    { name: 'create and start with none', unit: 'ms', target: 0.6, moreIsBetter: false },
    { name: 'create and start with 1000 stopped', unit: 'ms', target: 0.6, moreIsBetter: false },
    { name: 'the same, by that with none', unit: 'times', target: 1.05, moreIsBetter: false, isAbsolute: true },
    { name: 'daemon starts with 1000 stopped', unit: 'ms', target: 0.3, moreIsBetter: false },
  ],
  async prepare(engine, { image }, startAnother) {
    const empty = await startAnother();
    const create = (): Promise<string> => createContainer(engine, { image, command: ['/bin/true'], network: 'none' });
    await atOnce(CONTAINERS, 4, create);
    return async () => {
      const lists: number[] = [];
      for (let index = 0; index < LISTS; index++) lists.push(await timed(() => list(engine)));
      await inTurns([engine, empty], image, WARM_STARTS);
      const [among = NaN, alone = NaN] = await inTurns([engine, empty], image, STARTS);
      await empty.stop();
      await engine.stop();
      const restart = await timed(() => engine.start());
      await empty.start();
      return {
        'ps -a with 1000 stopped': median(lists),
        'create and start with none': alone,
        'create and start with 1000 stopped': among,
        'the same, by that with none': among / alone,
        'daemon starts with 1000 stopped': restart,
      };
    };
  },
};
