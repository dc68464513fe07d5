/** A container that prints 200 MB to its log, and the reading of that log. */
import type { Engine } from '../test/support/engine.js';
import { open } from '../test/support/http.js';
import { createContainer, removeContainer, startContainer, waitContainer } from './containers.js';
import { timedWarm, type Measure } from './measure.js';

const MEGABYTES = 200;
const BYTES = MEGABYTES * 1_000_000;
const LINE = 'The quick brown fox jumps over the lazy dog; pack my box with five dozen liquor jugs, said the judge';

/** Bytes of the response, headers of its frames included. */
async function readLog(engine: Engine, id: string): Promise<number> {
  const { message } = await open(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1`);
  let bytes = 0;
  for await (const chunk of message) bytes += (chunk as Buffer).length;
  return bytes;
}

export const logs: Measure = {
  name: 'logs',
  metrics: [
    { name: 'log write', unit: 'MB/s', target: 3, moreIsBetter: true },
    { name: 'log read-back', unit: 'MB/s', target: 5, moreIsBetter: true },
  ],
  async prepare(engine, { image }) {
    return async () => {
      const id = await createContainer(engine, {
        image,
        command: ['sh', '-c', `yes "${LINE}" | head -c ${BYTES}`],
        network: 'none',
      });
      const written = await timedWarm(async () => {
        await startContainer(engine, id);
        await waitContainer(engine, id);
      });
      let bytes = 0;
      const read = await timedWarm(async () => {
        bytes = await readLog(engine, id);
      });
      if (bytes < BYTES) throw new Error(`only ${bytes} bytes of the log came back`);
      await removeContainer(engine, id);
      return { 'log write': (MEGABYTES * 1000) / written, 'log read-back': (MEGABYTES * 1000) / read };
    };
  },
};
