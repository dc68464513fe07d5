/** Many clients: a thousand that ask, 32 that list 200 containers, ten thousand that do nothing. */
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Engine } from '../test/support/engine.js';
import { atOnce, createContainer } from './containers.js';
import type { Measure } from './measure.js';
import { residentBytes } from './resident-memory.js';
import { load } from './wrk.js';

const CONTAINERS = 200;
const IDLE_CONNECTIONS = 10_000;
const SETTLE_MS = 1000;

/** How much the engine grows while connections are held that have had one reply each. */
async function idleGrowth(engine: Engine): Promise<number> {
  await sleep(SETTLE_MS);
  const before = residentBytes(engine.pid);
  const sockets: Socket[] = [];
  const hold = async (): Promise<void> => {
    const socket = connect(engine.socketPath);
    sockets.push(socket);
    await once(socket, 'connect');
    socket.write('GET /_ping HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await once(socket, 'data');
  };
  await atOnce(IDLE_CONNECTIONS, 50, hold);
  await sleep(SETTLE_MS);
  const growth = residentBytes(engine.pid) - before;
  for (const socket of sockets) socket.destroy();
  return growth;
}

export const clients: Measure = {
  name: 'clients',
  metrics: [
    { name: 'idle connections, 10000', unit: 'MiB', target: 1, moreIsBetter: false },
    { name: '_ping, 1000 connections', unit: 'req/s', target: 1.5, moreIsBetter: true },
    { name: 'list 200 containers, p99', unit: 'ms', target: 0.5, moreIsBetter: false },
  ],
  transport: 'tcp',
  async prepare(engine, { image, tcpUrl }) {
    await atOnce(CONTAINERS, 4, async () => createContainer(engine, { image, command: ['sleep', '1000'] }));
    return async () => {
      // The leftovers of earlier samples would be used again.
      await engine.stop();
      await engine.start();
      return {
        'idle connections, 10000': (await idleGrowth(engine)) / 2 ** 20,
        '_ping, 1000 connections': (await load(`${tcpUrl}/_ping`, 1000)).requestsPerSecond,
        'list 200 containers, p99': (await load(`${tcpUrl}/containers/json?all=1`, 32)).p99Ms,
      };
    };
  },
};
