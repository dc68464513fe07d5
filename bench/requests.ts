/** Requests per second with 32 keep-alive connections of wrk, and 100 containers present. */
import { atOnce, createContainer } from './containers.js';
import type { Measure, Metric } from './measure.js';
import { load } from './wrk.js';

const CONTAINERS = 100;

const requestsPerSecond = async (url: string): Promise<number> => (await load(url, 32)).requestsPerSecond;

function metric(name: string, target: number): Metric {
  return { name, unit: 'req/s', target, moreIsBetter: true };
}

export const requests: Measure = {
  name: 'requests',
  metrics: [metric('_ping', 2.5), metric('list 100 containers', 8), metric('inspect', 2.5)],
  transport: 'tcp',
  async prepare(engine, { image, tcpUrl }) {
    let last = '';
    await atOnce(CONTAINERS, 4, async () => {
      last = await createContainer(engine, { image, command: ['sleep', '1000'] });
    });
    return async () => ({
      _ping: await requestsPerSecond(`${tcpUrl}/_ping`),
      'list 100 containers': await requestsPerSecond(`${tcpUrl}/containers/json?all=1`),
      inspect: await requestsPerSecond(`${tcpUrl}/containers/${last}/json`),
    });
  },
};
