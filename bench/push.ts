/** Push of a ten-layer image of 500 MB into an empty registry on loopback. */
import { dockerOk } from '../test/support/cli.js';
import type { Engine } from '../test/support/engine.js';
import { call, jsonLines, open } from '../test/support/http.js';
import { startRegistry } from '../test/support/registry.js';
import { tarOfBigLayer } from './big-image.js';
import { createContainer, removeContainer } from './containers.js';
import { timedWarm, type Measure } from './measure.js';
import { peakResidentBytes } from './resident-memory.js';

/** Pushes an image that the engine has; resolves with the milliseconds of it. */
export async function push(engine: Engine, image: string): Promise<number> {
  const registry = await startRegistry();
  try {
    const name = `${registry.host}/bench/pushed`;
    await dockerOk(engine, ['tag', image, `${name}:1`]);
    const elapsed = await timedWarm(async () => {
      const reply = await open(engine.socketPath, 'POST', `/images/${name}/push?tag=1`, {
        headers: { 'X-Registry-Auth': 'e30=' },
      });
      let isDone = false;
      for await (const { aux, error } of jsonLines<{ aux?: unknown; error?: string }>(reply.message)) {
        if (error !== undefined) throw new Error(error);
        isDone ||= aux !== undefined;
      }
      if (!isDone) throw new Error(`the push ended without a digest (${reply.status})`);
    });
    await dockerOk(engine, ['rmi', `${name}:1`]);
    return elapsed;
  } finally {
    await registry.stop();
  }
}

async function pushWithMemory(
  engine: Engine,
  image: string,
): Promise<{ readonly elapsed: number; readonly peak: number }> {
  let elapsed = 0;
  const peak = await peakResidentBytes(engine.pid, async () => {
    elapsed = await push(engine, image);
  });
  return { elapsed, peak: peak / 2 ** 20 };
}

export const pushBigImage: Measure = {
  name: 'push',
  metrics: [
    { name: 'push 500 MB', unit: 'ms', target: 0.6, moreIsBetter: false },
    { name: 'memory at the peak of the push', unit: 'MiB', target: 1, moreIsBetter: false },
  ],
  async prepare(engine, setting) {
    const reference = await setting.bigImage();
    await dockerOk(engine, ['pull', '-q', reference], { timeoutMs: 600_000 });
    return async () => {
      const { elapsed, peak } = await pushWithMemory(engine, reference);
      return { 'push 500 MB': elapsed, 'memory at the peak of the push': peak };
    };
  },
};

const MADE = 'bench/made';

/** A layer that no registry has: it is compressed while it is sent. Its files are those of the image that is pulled. */
export const pushMadeLayer: Measure = {
  name: 'push-made',
  metrics: [
    { name: 'push a layer of 200 MB made here', unit: 'ms', target: 0.6, moreIsBetter: false },
    { name: 'memory at the peak of that push', unit: 'MiB', target: 1, moreIsBetter: false },
  ],
  async prepare(engine, { image }) {
    const id = await createContainer(engine, { image, command: ['true'], network: 'none' });
    for (let index = 0; index < 4; index++) {
      const body = tarOfBigLayer(index);
      const { status } = await call(engine.socketPath, 'PUT', `/containers/${id}/archive?path=/`, { body });
      if (status !== 200) throw new Error(`the archive was not unpacked: ${status}`);
    }
    await dockerOk(engine, ['commit', id, MADE], { timeoutMs: 600_000 });
    await removeContainer(engine, id);
    return async () => {
      const { elapsed, peak } = await pushWithMemory(engine, MADE);
      return { 'push a layer of 200 MB made here': elapsed, 'memory at the peak of that push': peak };
    };
  },
};
