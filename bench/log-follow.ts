/** Twenty readers that follow the log of a container while it prints 50 MB. */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Engine } from '../test/support/engine.js';
import { callJson } from '../test/support/http.js';
import { createContainer, removeContainer, startContainer, waitContainer } from './containers.js';
import { timed, type Measure } from './measure.js';

const READERS = 20;
const BYTES = 50_000_000;
/** By then all of them follow. */
const ATTACH_MS = 1500;
const LINE = 'The quick brown fox jumps over the lazy dog; pack my box with five dozen liquor jugs, said the judge';
/** Prints once it is told to, so that everybody follows by then. */
const SCRIPT = `trap go=1 USR1; echo ready; while [ -z "$go" ]; do sleep 0.02; done; yes "${LINE}" | head -c ${BYTES}`;

/** Readers are processes of their own, to cost both engines the same. Resolves with the bytes that each got. */
function follow(engine: Engine, id: string): { readonly bytes: Promise<number> } {
  const child = spawn(
    'curl',
    [
      '-sN',
      '--unix-socket',
      engine.socketPath,
      '-o',
      '/dev/null',
      '-w',
      '%{size_download}',
      `http://engine/containers/${id}/logs?stdout=1&follow=1`,
    ],
    { stdio: ['ignore', 'pipe', 'inherit'] },
  );
  let output = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => (output += text));
  return { bytes: once(child, 'close').then(() => Number(output)) };
}

export const logFollow: Measure = {
  name: 'log-follow',
  metrics: [{ name: '20 readers follow 50 MB', unit: 'ms', target: 0.7, moreIsBetter: false }],
  async prepare(engine, { image }) {
    return async () => {
      const id = await createContainer(engine, { image, command: ['sh', '-c', SCRIPT], network: 'none' });
      await startContainer(engine, id);
      const readers = Array.from({ length: READERS }, () => follow(engine, id));
      await sleep(ATTACH_MS);
      const ms = await timed(async () => {
        await callJson(engine.socketPath, 'POST', `/containers/${id}/kill?signal=USR1`);
        const got = await Promise.all(readers.map(({ bytes }) => bytes));
        if (got.some((bytes) => bytes < BYTES)) throw new Error(`a reader got only ${Math.min(...got)} bytes`);
      });
      await waitContainer(engine, id);
      await removeContainer(engine, id);
      return { '20 readers follow 50 MB': ms };
    };
  },
};
