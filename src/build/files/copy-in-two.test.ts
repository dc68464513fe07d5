import assert from 'node:assert/strict';
import type { MessagePort } from 'node:worker_threads';
import { after, test } from 'node:test';
import { createWorkerPool, type WorkerPool } from '../../workers/pool.js';
import { waitFor } from '../../../test/support/wait.js';
import { copyInTwo } from './copy-in-two.js';
import { FileLine } from './file-line.js';

const workers = createWorkerPool({ maxThreads: 1 });
after(() => workers.close());

const signal = new AbortController().signal;
const FILE = { path: '/nowhere/file', uid: 0, gid: 0, mode: 0o644, time: [0, 0] } as const;

/** Does `copy` with a line that has a writer in the place of copying files. */
async function copying(copy: (line: FileLine) => unknown): Promise<void> {
  const writers: Promise<unknown>[] = [];
  const run = async (task: string, input: { readonly port: MessagePort }): Promise<unknown> => {
    if (task !== 'build-copy') {
      const writer = workers.run(task as never, input as never);
      writers.push(writer.catch(() => undefined));
      return writer;
    }
    const line = new FileLine((memory) => input.port.postMessage(memory, []));
    for (let files = 0; files < 100; files++) line.isManned();
    await waitFor('a writer', () => line.isManned());
    return copy(line);
  };
  const pool = { run, queued: 0, close: () => workers.close() } as unknown as WorkerPool;
  try {
    await copyInTwo(pool, {} as never, signal);
  } finally {
    await Promise.all(writers);
    assert.equal(writers.length, 1);
  }
}

test('a copy whose writer fails fails with the words of the writer', async () => {
  const copy = async (line: FileLine): Promise<void> => {
    line.put(FILE, 10, () => 1);
    await waitFor('its failure', () => {
      try {
        return line.put(FILE, 10, () => 1) === undefined;
      } catch {
        return true;
      }
    });
    line.drain();
  };
  await assert.rejects(copying(copy), { code: 'ENOENT' });
});

test('a writer ends when the copy has failed, and waits for no file', async () => {
  const lost = new Error('the copy has failed');
  await assert.rejects(
    copying(() => {
      throw lost;
    }),
    lost,
  );
});
