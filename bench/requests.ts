/** Requests per second with 32 keep-alive connections of wrk, and 100 containers present. */
import { execFile } from 'node:child_process';
import { promisify } from 'node:util';
import { atOnce, createContainer } from './containers.js';
import type { Measure, Metric } from './measure.js';

const CONTAINERS = 100;
const SECONDS = 3;
const run = promisify(execFile);

async function requestsPerSecond(url: string): Promise<number> {
  const { stdout } = await run('wrk', ['-t1', '-c32', `-d${SECONDS}s`, url]);
  const rate = /Requests\/sec: +([\d.]+)/.exec(stdout)?.[1];
  if (rate === undefined || /Non-2xx|Socket errors/.test(stdout)) throw new Error(`wrk on ${url}: ${stdout}`);
  return Number(rate);
}

function metric(name: string): Metric {
  return { name, unit: 'req/s', target: 2, moreIsBetter: true };
}

export const requests: Measure = {
  name: 'requests',
  metrics: [metric('_ping'), metric('list 100 containers'), metric('inspect')],
  rounds: 5,
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
