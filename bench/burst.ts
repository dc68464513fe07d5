/** 32 clients call `run --rm true` at the same time. */
import { callJson, open } from '../test/support/http.js';
import type { Engine } from '../test/support/engine.js';
import { startContainer } from './containers.js';
import { timed, type Measure } from './measure.js';

const AT_ONCE = 32;

async function runAndRemove(engine: Engine, image: string): Promise<void> {
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', {
    json: { Image: image, Cmd: ['/bin/true'], HostConfig: { AutoRemove: true } },
  });
  const removal = await open(engine.socketPath, 'POST', `/containers/${Id}/wait?condition=removed`);
  await startContainer(engine, Id);
  let text = '';
  for await (const chunk of removal.message) text += String(chunk);
  const { StatusCode } = JSON.parse(text) as { StatusCode: number };
  if (StatusCode !== 0) throw new Error(`it ended with ${StatusCode}`);
}

export const burst: Measure = {
  name: 'burst',
  metrics: [{ name: '32 run --rm true at once', unit: 'ms', target: 0.6, moreIsBetter: false }],
  async prepare(engine, { image }) {
    const all = (): Promise<unknown> => Promise.all(Array.from({ length: AT_ONCE }, () => runAndRemove(engine, image)));
    await runAndRemove(engine, image);
    return async () => ({ '32 run --rm true at once': await timed(all) });
  },
};
