import assert from 'node:assert/strict';
import { once } from 'node:events';
import {
  cpSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Worker } from 'node:worker_threads';
import { isEngineError } from '../errors/engine-error.js';
import { libc } from '../sys/ffi/libc.js';
import { begin, doom, doomAll, end, keepAlive, newLife, unkilled } from '../sys/ffi/unkilled.js';
import { failure, unwrap } from './outcome.js';
import { createWorkerPool } from './pool.js';
import { invalid } from '../errors/engine-error.js';

const pool = createWorkerPool({ maxThreads: 2, idleTimeoutMs: 200 });
after(() => pool.close());

test('tasks run in threads and give their result', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'worker-pool-'));
  mkdirSync(join(dir, 'sub'));
  writeFileSync(join(dir, 'sub', 'é'), 'four');
  writeFileSync(join(dir, 'x'), 'xyz');
  assert.equal(await pool.run('tree-size', { path: dir }), 7);
  await pool.run('remove-trees', { paths: [dir] });
  assert.equal(existsSync(dir), false);
});

test("a thread has no copy of V8's built-in functions", async () => {
  const copies = (): number =>
    readFileSync('/proc/self/smaps', 'latin1').match(new RegExp(` r-xp .* ${process.execPath}$`, 'gm'))?.length ?? 0;
  const threads = createWorkerPool({ maxThreads: 1 });
  const before = copies();
  await threads.run('tree-size', { path: '/proc/self/net' });
  // Threads of other tests, which have such copies, may have ended meanwhile.
  assert.ok(copies() <= before);
  await threads.close();
});

test('an error of a task keeps its code across the thread', async () => {
  await assert.rejects(
    pool.run('tree-size', { path: '/proc/self/nonexistent' }),
    (error) => isEngineError(error, 'internal') && error.code === 'ENOENT',
  );
  const error = invalid('no', { code: 'X', details: { a: 1 } });
  assert.throws(() => unwrap(structuredClone(failure(error))), {
    kind: 'invalid',
    code: 'X',
    message: 'no',
    details: { a: 1 },
  });
});

test('an aborted task is cancelled', async () => {
  await assert.rejects(pool.run('tree-size', { path: '/proc/self' }, { signal: AbortSignal.abort() }), (error) =>
    isEngineError(error, 'cancelled'),
  );
});

test('a thread is not killed while it loads a task or declares functions of the C library', async () => {
  const [unborn, life] = [newLife(), newLife()];
  assert.equal(doom(unborn), 'unborn');
  assert.equal(await begin(unborn, () => assert.fail('it is loaded')), undefined);
  const loaded = await begin(life, async () => {
    const getpid = libc.func<[]>('int getpid()');
    assert.equal(doom(life), 'later');
    return getpid;
  });
  assert.equal(loaded?.(), process.pid);
  assert.equal(
    unkilled(() => doom(life)),
    'later',
  );
  assert.equal(doom(life), 'kill');
  end(life);
});

test('a thread is not killed by another of its tasks, while one does what a kill must not break off', async () => {
  const [first, second, third] = [newLife(), newLife(), newLife()];
  for (const life of [first, second]) await begin(life, async () => undefined);
  const releases = [keepAlive(), keepAlive()];
  await begin(third, async () => undefined);
  for (const release of releases) {
    assert.deepEqual([first, second, third].map(doom), ['later', 'later', 'later']);
    release();
  }
  assert.deepEqual([first, second, third].map(doom), ['kill', 'kill', 'kill']);
  for (const life of [first, second, third]) end(life);
});

test('a task that is loaded is not held up by another one of its thread that is to be killed', async () => {
  const [doomed, loading] = [newLife(), newLife()];
  await begin(doomed, async () => undefined);
  assert.equal(doom(doomed), 'kill');
  assert.equal(await begin(loading, async () => unkilled(() => 'loaded')), 'loaded');
  assert.equal(doom(loading), 'kill');
  for (const life of [doomed, loading]) end(life);
});

test('a pool is not closed while a thread loads a task', async () => {
  const [loading, waiting] = [newLife(), newLife()];
  const events: string[] = [];
  let loaded: () => void = () => undefined;
  const begun = begin(loading, () => new Promise<void>((resolve) => (loaded = resolve)));
  const closed = doomAll(new Set([loading, waiting])).then(() => events.push('closed'));
  // The other task never begins.
  assert.equal(await begin(waiting, () => assert.fail('it is loaded')), undefined);
  await new Promise((resolve) => setImmediate(resolve));
  events.push('loaded');
  loaded();
  await Promise.all([begun, closed]);
  assert.deepEqual(events, ['loaded', 'closed']);
  end(loading);
});

test('a thread that waits for its kill does not keep its other tasks alive', { timeout: 60_000 }, async () => {
  const [doomed, other] = [newLife(), newLife()];
  const code = `
    const { parentPort, workerData: { url, lives } } = require('node:worker_threads');
    import(url).then(async ({ begin, keepAlive }) => {
      for (const life of lives) await begin(life, async () => undefined);
      parentPort.once('message', () => keepAlive());
      parentPort.postMessage('begun');
    });`;
  const url = new URL('../sys/ffi/unkilled.js', import.meta.url).href;
  const thread = new Worker(code, { eval: true, workerData: { url, lives: [doomed, other] } });
  try {
    await once(thread, 'message');
    assert.equal(doom(doomed), 'kill');
    thread.postMessage('go', []);
    // It waits by then, mostly; nothing tells when.
    await new Promise((resolve) => setTimeout(resolve, 200));
    await doomAll([doomed, other]);
  } finally {
    await thread.terminate();
  }
});

test('tasks that are aborted at any moment are cancelled, and others go on', async () => {
  const order = { trees: [], ignoresOwners: false };
  for (let round = 0; round < 8; round++) {
    const abort = new AbortController();
    const tasks = Array.from({ length: 4 }, () => pool.run('build-digest', order, { signal: abort.signal }));
    setTimeout(() => abort.abort(), round * 4);
    for (const { status, reason } of (await Promise.allSettled(tasks)) as PromiseRejectedResult[])
      assert.ok(status !== 'rejected' || isEngineError(reason, 'cancelled'), String(reason));
  }
  assert.equal((await pool.run('build-digest', order)).hex.length, 64);
});

test('when the code of the threads is gone, tasks fail; when it is back, they run', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'worker-pool-'));
  try {
    cpSync(fileURLToPath(new URL('..', import.meta.url)), join(dir, 'src'), { recursive: true });
    writeFileSync(join(dir, 'package.json'), '{"type":"module"}');
    symlinkSync(fileURLToPath(new URL('../../../node_modules', import.meta.url)), join(dir, 'node_modules'));
    const entry = join(dir, 'src', 'workers', 'entry.js');
    renameSync(entry, `${entry}.away`);
    const moved = (
      (await import(join(dir, 'src', 'workers', 'pool.js'))) as { readonly createWorkerPool: typeof createWorkerPool }
    ).createWorkerPool({ maxThreads: 2 });
    const run = (): Promise<number> => moved.run('tree-size', { path: join(dir, 'src', 'workers') });
    for (const { status, reason } of (await Promise.allSettled([run(), run(), run()])) as PromiseRejectedResult[]) {
      assert.equal(status, 'rejected');
      assert.match(String(reason), /no worker thread could be started: .*entry\.js/);
    }
    renameSync(`${entry}.away`, entry);
    assert.equal(typeof (await run()), 'number');
    await moved.close();
  } finally {
    rmSync(dir, { recursive: true });
  }
});
