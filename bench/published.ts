/**
 * A hundred containers with a published port each: started one after another, and kept while the daemon is restarted.
 */
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Engine } from '../test/support/engine.js';
import { endProcess, startInside } from '../test/support/host-networks.js';
import { callJson } from '../test/support/http.js';
import { openOutside } from '../test/support/outside.js';
import { createContainer, startContainer } from './containers.js';
import { median, timed, type Measure } from './measure.js';

const CONTAINERS = 100;
/** The number of first and of last starts that are compared. */
const ENDS = 10;
const HOST = '10.219.0.1';
const OUTSIDE = '10.219.0.2';
const PROBES_EVERY_MS = 10;
/** A probe that gets no answer by then has failed. */
const PROBE_TIMEOUT_MS = 5000;

export const published: Measure = {
  name: 'published',
  args: ['--live-restore'],
  metrics: [
    { name: 'start with a port, of 100 in a row', unit: 'ms', target: 0.5, moreIsBetter: false },
    { name: 'the last ten by the first ten', unit: 'times', target: 1.3, moreIsBetter: false, isAbsolute: true },
    { name: 'restart with 100 published ports', unit: 'ms', target: 0.5, moreIsBetter: false },
    { name: 'probes that fail meanwhile', unit: 'probes', target: 0, moreIsBetter: false, isAbsolute: true },
  ],
  async prepare(engine, { image }) {
    const starts: number[] = [];
    for (let index = 0; index < CONTAINERS; index++) {
      const id = await createContainer(engine, { image, command: ['httpd', '-f', '-p', '80'], publishes: true });
      starts.push(await timed(() => startContainer(engine, id)));
    }
    const ports = await portsOf(engine);
    return async () => {
      const probes = await probe(ports);
      await engine.stop();
      const restart = await timed(async () => {
        await engine.start();
        if ((await portsOf(engine)).join() !== ports.join()) throw new Error('the ports have changed');
      });
      return {
        'start with a port, of 100 in a row': median(starts),
        'the last ten by the first ten': median(starts.slice(-ENDS)) / median(starts.slice(0, ENDS)),
        'restart with 100 published ports': restart,
        'probes that fail meanwhile': await probes.stop(),
      };
    };
  },
};

async function portsOf(engine: Engine): Promise<number[]> {
  const running = await callJson<{ Ports: { PublicPort?: number }[] }[]>(engine.socketPath, 'GET', '/containers/json');
  if (running.length !== CONTAINERS) throw new Error(`${running.length} of ${CONTAINERS} containers run`);
  return running.map(({ Ports }) => Ports[0]?.PublicPort ?? 0);
}

/**
 * Another machine that connects to all ports by turns, the whole time. `stop` resolves with how many times it had no
 * answer.
 */
async function probe(ports: readonly number[]): Promise<{ stop(): Promise<number> }> {
  const directory = mkdtempSync(join(tmpdir(), 'probe-'));
  const outside = openOutside(directory, { here: [`${HOST}/24`], there: [`${OUTSIDE}/24`] });
  const program = `
    const ports = ${JSON.stringify(ports)}; let failed = 0, open = 0, next = 0, done = 0;
    const ask = () => {
      open++;
      const socket = require('node:net').connect(ports[next++ % ports.length], '${HOST}');
      socket.on('connect', () => socket.write('GET / HTTP/1.0\\r\\n\\r\\n'));
      let isAnswered = false;
      socket.setTimeout(${PROBE_TIMEOUT_MS}, () => socket.destroy()).on('error', () => 0);
      socket.on('data', () => (isAnswered = true)).on('close', () => {
        open--;
        if (!isAnswered) failed++;
        if (++done === ports.length) console.log('ready');
      });
    };
    const timer = setInterval(ask, ${PROBES_EVERY_MS});
    const end = () => { if (open === 0) { console.log('failed ' + failed); process.exit(); } };
    process.on('SIGTERM', () => { clearInterval(timer); setInterval(end, 10); });`;
  const child = startInside(outside.path, process.execPath, '-e', program);
  let output = '';
  child.stdout.on('data', (data) => (output += String(data)));
  await once(child.stdout, 'data');
  return {
    async stop() {
      const ended = once(child, 'close');
      child.kill('SIGTERM');
      await ended;
      await endProcess(child);
      outside.remove();
      rmSync(directory, { recursive: true });
      return Number(/failed (\d+)/.exec(output)?.[1]);
    },
  };
}
