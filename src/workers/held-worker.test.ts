import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { MessageChannel, type Worker as NodeWorker, type WorkerOptions } from 'node:worker_threads';

const dir = mkdtempSync(join(tmpdir(), 'held-worker-'));
after(() => rmSync(dir, { recursive: true }));

/**
 * It answers each task with the number of its thread, but not the task 'never'. It fails soon after 'fail', and has
 * changed after 'change'.
 */
const THREAD = `(function (require) {
  const { parentPort, threadId, workerData } = require('node:worker_threads');
  parentPort.on('message', ({ port, sharedBuffer }) =>
    port.on('message', (task) => {
      if (task === 'never') return;
      if (task === 'change') workerData.changed.fill(1);
      port.postMessage(threadId);
      Atomics.add(sharedBuffer, 1, 1);
      if (task === 'fail') setImmediate(() => { throw new Error('failed later'); });
    }));
})`;

/** A pool's part: gives a thread its port and tasks, and counts them. */
class User {
  readonly sharedBuffer = new Int32Array(new SharedArrayBuffer(8));
  readonly #channel = new MessageChannel();

  constructor(readonly worker: NodeWorker) {
    worker.on('error', () => undefined);
    const { port2: port } = this.#channel;
    worker.postMessage({ port, sharedBuffer: this.sharedBuffer }, [port]);
  }

  /** Gives the thread a task, whose answer is not waited for. */
  give(task: string): void {
    Atomics.add(this.sharedBuffer, 0, 1);
    this.#channel.port1.postMessage(task, []);
  }

  /** Resolves with the number of the thread when it has answered a task. */
  async ask(task: string): Promise<number> {
    const answered = once(this.#channel.port1, 'message') as Promise<[number]>;
    this.give(task);
    const [thread] = await answered;
    while (this.sharedBuffer[0] !== this.sharedBuffer[1]) await new Promise((resolve) => setImmediate(resolve));
    return thread;
  }

  /** Resolves when the pool has heard of the end. */
  async end(): Promise<void> {
    const ended = once(this.worker, 'exit');
    await this.worker.terminate();
    this.#channel.port1.close();
    await ended;
  }
}

test('a thread that has done its tasks is the next one of any pool; others really end', async () => {
  const file = join(dir, 'thread.cjs');
  writeFileSync(file, THREAD);
  Object.assign(globalThis, { ENGINED_THREAD: pathToFileURL(file).href });
  const { Worker } = await import('./held-worker.js').finally(() =>
    Reflect.deleteProperty(globalThis, 'ENGINED_THREAD'),
  );
  const Thread = Worker as unknown as new (file: string, options: WorkerOptions) => NodeWorker;
  const start = (): User => new User(new Thread('', {}));
  const first = start();
  const thread = await first.ask('one');
  await first.end();
  const second = start();
  const beside = start();
  assert.equal(await second.ask('two'), thread);
  const other = await beside.ask('two');
  assert.notEqual(other, thread);
  // One that has not answered is not kept.
  await beside.end();
  second.give('never');
  await second.end();
  const third = start();
  assert.equal(await third.ask('three'), other);
  const changing = start();
  const changed = await changing.ask('change');
  await changing.end();
  const fresh = start();
  assert.notEqual(await fresh.ask('four'), changed, 'one that has changed is not kept');
  const failing = start();
  const failed = new Promise((resolve) => failing.worker.once('exit', resolve));
  // Nobody gets it, though it has answered.
  const lost = await failing.ask('fail');
  await failed;
  await failing.worker.terminate();
  const last = start();
  assert.notEqual(await last.ask('four'), lost);
  await Promise.all([third.end(), fresh.end(), last.end()]);
});
