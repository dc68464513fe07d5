/**
 * Networks: make and remove one, start containers with a published port one after another, ask for a neighbour's name.
 */
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Engine } from '../test/support/engine.js';
import { outputInside } from '../test/support/host-networks.js';
import { callJson } from '../test/support/http.js';
import { createContainer, removeContainer, startContainer } from './containers.js';
import { median, timed, type Measure } from './measure.js';

const NETWORKS = 10;
const CONTAINERS = 20;
const QUERY_SECONDS = 2;
/** Questions under way at a time. */
const QUERIES_AT_ONCE = 100;

export const network: Measure = {
  name: 'network',
  metrics: [
    { name: 'create and remove a network', unit: 'ms', target: 0.5, moreIsBetter: false },
    { name: 'start with a published port', unit: 'ms', target: 0.5, moreIsBetter: false },
    { name: 'what the bridge adds to a start', unit: 'ms', target: 25, moreIsBetter: false, isAbsolute: true },
    { name: 'names of neighbours', unit: 'req/s', target: 2, moreIsBetter: true },
  ],
  async prepare(engine, { image }) {
    const post = <T>(path: string, json: unknown): Promise<T> => callJson<T>(engine.socketPath, 'POST', path, { json });
    await post('/networks/create', { Name: 'names' });
    const { Id } = await post<{ Id: string }>('/containers/create?name=neighbour', {
      Image: image,
      Cmd: ['sleep', '100000'],
      HostConfig: { NetworkMode: 'names' },
    });
    await startContainer(engine, Id);
    const { NetworkSettings } = await callJson<{ NetworkSettings: { SandboxKey: string } }>(
      engine.socketPath,
      'GET',
      `/containers/${Id}/json`,
    );
    await lifeOfNetwork(engine);
    return async () => {
      const lives: number[] = [];
      for (let index = 0; index < NETWORKS; index++) lives.push(await timed(() => lifeOfNetwork(engine)));
      return {
        'create and remove a network': median(lives),
        'start with a published port': median(await startPublished(engine, image)),
        'what the bridge adds to a start': await costOfBridge(engine, image),
        'names of neighbours': await queriesPerSecond(NetworkSettings.SandboxKey),
      };
    };
  },
};

async function lifeOfNetwork(engine: Engine): Promise<void> {
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/networks/create', {
    json: { Name: 'passing' },
  });
  await callJson(engine.socketPath, 'DELETE', `/networks/${Id}`);
}

/** Milliseconds that a start on the default bridge takes longer than one without a network, taken by turns. */
async function costOfBridge(engine: Engine, image: string): Promise<number> {
  const times = { bridge: [] as number[], none: [] as number[] };
  for (let index = 0; index < CONTAINERS; index++) {
    for (const network of ['bridge', 'none'] as const) {
      const id = await createContainer(engine, { image, command: ['sleep', '100000'], network });
      times[network].push(await timed(() => startContainer(engine, id)));
      await removeContainer(engine, id);
    }
  }
  return median(times.bridge) - median(times.none);
}

/** Milliseconds of each start, while those before go on running. */
async function startPublished(engine: Engine, image: string): Promise<number[]> {
  const ids: string[] = [];
  const times: number[] = [];
  for (let index = 0; index < CONTAINERS; index++) {
    const id = await createContainer(engine, { image, command: ['sleep', '100000'], publishes: true });
    ids.push(id);
    times.push(await timed(() => startContainer(engine, id)));
  }
  await Promise.all(ids.map((id) => removeContainer(engine, id)));
  return times;
}

/** From inside a container, over datagrams. */
async function queriesPerSecond(netns: string): Promise<number> {
  const directory = await mkdtemp(join(tmpdir(), 'bench-names-'));
  try {
    const questions = join(directory, 'questions');
    await writeFile(questions, 'neighbour A\n');
    const output = await outputInside(
      netns,
      'dnsperf',
      '-s',
      '127.0.0.11',
      '-d',
      questions,
      '-l',
      String(QUERY_SECONDS),
      '-c',
      '1',
      '-T',
      '1',
      '-q',
      String(QUERIES_AT_ONCE),
    );
    const rate = /Queries per second: +([\d.]+)/.exec(output)?.[1];
    if (rate === undefined || !/NOERROR \d+ \(100\.00%\)/.test(output) || !/Queries lost: +0 /.test(output))
      throw new Error(`dnsperf: ${output}`);
    return Number(rate);
  } finally {
    await rm(directory, { recursive: true });
  }
}
