/** Pull of a ten-layer image of 500 MB from a registry on loopback, and the memory that it takes. */
import { readFileSync } from 'node:fs';
import { connect } from 'node:net';
import type { Engine } from '../test/support/engine.js';
import { callJson, jsonLines, open } from '../test/support/http.js';
import type { Shape } from './images.js';
import { timedWarm, type Measure } from './measure.js';
import { peakResidentBytes } from './resident-memory.js';

/** Pulls, and reads the progress as a client does. @throws when the pull fails. */
export async function pull(engine: Engine, reference: string): Promise<void> {
  const reply = await open(engine.socketPath, 'POST', `/images/create?fromImage=${reference}`);
  let last = '';
  for await (const { status, error } of jsonLines<{ status?: string; error?: string }>(reply.message)) {
    if (error !== undefined) throw new Error(error);
    last = status ?? last;
  }
  if (!/^Status: (?:Downloaded newer image|Image is up to date)/.test(last))
    throw new Error(`the pull ended with ${JSON.stringify(last)} (${reply.status})`);
}

export const pullBigImage: Measure = {
  name: 'pull',
  metrics: [
    { name: 'pull 500 MB', unit: 'ms', target: 0.3, targetElsewhere: 0.6, moreIsBetter: false },
    { name: 'memory at the peak of the pull', unit: 'MiB', target: 1, moreIsBetter: false },
  ],
  async prepare(engine, setting) {
    const reference = await setting.bigImage();
    return async () => {
      let elapsed = 0;
      const peak = await peakResidentBytes(engine.pid, async () => {
        elapsed = await timedWarm(() => pull(engine, reference));
      });
      await callJson(engine.socketPath, 'DELETE', `/images/${reference}`);
      return { 'pull 500 MB': elapsed, 'memory at the peak of the pull': peak / 2 ** 20 };
    };
  },
};

/** Pulls of images of other shapes. */
function shaped(name: string, metric: string, target: number, repository: Shape): Measure {
  return {
    name,
    metrics: [{ name: metric, unit: 'ms', target, moreIsBetter: false }],
    async prepare(engine, setting) {
      const image = await setting.shapedImage(repository);
      return async () => ({ [metric]: await pullAndRemove(engine, image, 1) });
    },
  };
}

/** As `pull`, by a client that computes next to nothing: a thousand of them run on the machine that is measured. */
async function follow(engine: Engine, reference: string): Promise<void> {
  const socket = connect(engine.socketPath);
  socket.write(
    `POST /images/create?fromImage=${reference} HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n` +
      'Content-Length: 0\r\n\r\n',
  );
  let end = '';
  for await (const chunk of socket as AsyncIterable<Buffer>)
    end = (end + chunk.toString('latin1', Math.max(0, chunk.length - 200))).slice(-400);
  if (!end.includes('"Status: ')) throw new Error(`the pull ended with ${JSON.stringify(end)}`);
}

async function pullAndRemove(engine: Engine, image: string, clients: number): Promise<number> {
  const elapsed = await timedWarm(() =>
    Promise.all(Array.from({ length: clients }, (_, index) => (index === 0 ? pull : follow)(engine, image))),
  );
  await callJson(engine.socketPath, 'DELETE', `/images/${image}`);
  return elapsed;
}

export const pullLargeLayer = shaped('pull-large', 'pull one layer of 1 GB', 0.7, 'bench/large-layer');
export const pullManyFiles = shaped('pull-files', 'pull 20,000 small files', 0.8, 'bench/many-files');

/**
 * Milliseconds that the main thread of a process has computed: what its neighbours on the machine do counts less there
 * than in the time.
 */
function mainThreadMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/task/${pid}/stat`, 'latin1')
    .replace(/^.*\) /s, '')
    .split(' ');
  // utime and stime, in ticks of a hundredth of a second (proc(5)).
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

/** More clients of the same pull, and their cost. */
export const pullByMany: Measure = {
  name: 'pull-clients',
  metrics: [
    { name: 'pull 500 MB for 16 clients', unit: 'ms', target: 0.6, moreIsBetter: false },
    { name: 'pull for 16 clients, against one', unit: 'times', target: 1.2, moreIsBetter: false, isAbsolute: true },
  ],
  async prepare(engine, setting) {
    const image = await setting.bigImage();
    return async () => {
      const one = await pullAndRemove(engine, image, 1);
      const some = await pullAndRemove(engine, image, 16);
      return { 'pull 500 MB for 16 clients': some, 'pull for 16 clients, against one': some / one };
    };
  },
};

/** A crowd that watches a pull, and its cost. */
export const pullReaders: Measure = {
  name: 'pull-readers',
  metrics: [
    { name: 'pull for 1000 clients, against one', unit: 'times', target: 1.1, moreIsBetter: false, isAbsolute: true },
    {
      name: 'main thread for 999 more clients, against the pull',
      unit: 'times',
      target: 0.1,
      moreIsBetter: false,
      isAbsolute: true,
    },
  ],
  isForEnginedAlone: true,
  async prepare(engine, setting) {
    const image = await setting.bigImage();
    return async () => {
      const begin = mainThreadMs(engine.pid);
      const one = await pullAndRemove(engine, image, 1);
      const before = mainThreadMs(engine.pid);
      const many = await pullAndRemove(engine, image, 1000);
      const more = mainThreadMs(engine.pid) - before - (before - begin);
      return {
        'pull for 1000 clients, against one': many / one,
        'main thread for 999 more clients, against the pull': more / one,
      };
    };
  },
};
