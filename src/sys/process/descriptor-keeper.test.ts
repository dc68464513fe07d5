import assert from 'node:assert/strict';
import {
  closeSync,
  constants,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readSync,
  rmSync,
  writeSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { makeFifo } from '../files/inode.js';
import { DescriptorKeeper } from './descriptor-keeper.js';

const dir = mkdtempSync(join(tmpdir(), 'keeper-'));
after(() => rmSync(dir, { recursive: true, force: true }));

/** Makes a FIFO with text in it, and has its reading end kept; nobody else has it open then. */
async function fill(keeper: DescriptorKeeper, name: string, text: string): Promise<string> {
  const path = join(dir, name);
  makeFifo(path);
  const reader = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const writer = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK);
  writeSync(writer, text);
  await keeper.hold(name, [reader]);
  closeSync(writer);
  closeSync(reader);
  return path;
}

function contentOf(path: string): string {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const bytes = Buffer.alloc(100);
  const count = readSync(fd, bytes, 0, 100, null);
  closeSync(fd);
  return bytes.toString('utf8', 0, count);
}

/** The processes that wait in a directory of keepers, with their resident memory in kB. */
function keepersOf(place: string): number[] {
  return readdirSync('/proc').flatMap((pid) => {
    try {
      if (!readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes(`cat\0${place}/`)) return [];
      return [Number(/^VmRSS:\s*(\d+)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1] ?? 0)];
    } catch {
      return [];
    }
  });
}

async function untilKeepers(place: string, count: number): Promise<void> {
  while (keepersOf(place).length !== count) await delay(10);
}

test('what is in a pipe outlives its ends, and goes with the keeper or when it is released', async () => {
  const place = join(dir, 'keepers');
  const keeper = new DescriptorKeeper(place);
  const paths = await Promise.all(Array.from({ length: 300 }, (_, i) => fill(keeper, `pipe${i}`, `text ${i}`)));
  const [rss = 0, ...others] = keepersOf(place);
  assert.deepEqual(others, []);
  assert.ok(rss > 0 && rss < 8192, `${rss} kB`);
  // Most are given back, so that the queue is swept; the others must survive that.
  for (let i = 0; i < 290; i++) keeper.release(`pipe${i}`);
  assert.deepEqual(
    paths.slice(290).map(contentOf),
    Array.from({ length: 10 }, (_, i) => `text ${290 + i}`),
  );
  assert.equal(contentOf(paths[0] ?? ''), '', 'nobody has it open any more');
  // A keeper that holds something stays when its daemon ends, and ends when the next one says so.
  await fill(keeper, 'last', 'last words');
  keeper.close();
  await delay(50);
  assert.equal(keepersOf(place).length, 1);
  const next = new DescriptorKeeper(place);
  const again = await fill(next, 'again', 'of the next');
  assert.equal(contentOf(join(dir, 'last')), 'last words');
  await fill(next, 'then', 'kept by the next');
  next.endEarlier();
  await untilKeepers(place, 1);
  assert.equal(contentOf(join(dir, 'then')), 'kept by the next');
  next.release('again');
  next.release('then');
  assert.equal(contentOf(again), 'of the next', 'the queue is not swept for so few');
  next.close();
  await untilKeepers(place, 0);
});

test('a name that is released before the process runs is not kept', async () => {
  const place = join(dir, 'early');
  const keeper = new DescriptorKeeper(place);
  const fifo = join(dir, 'early-fifo');
  makeFifo(fifo);
  const reader = openSync(fifo, constants.O_RDONLY | constants.O_NONBLOCK);
  const held = keeper.hold('early', [reader]);
  keeper.release('early');
  await held;
  closeSync(reader);
  keeper.close();
  await untilKeepers(place, 0);
});

test('a keeper that ends at any moment of its start leaves no process', async () => {
  const place = join(dir, 'at-once');
  const fd = openSync('/dev/null', constants.O_RDONLY);
  // One of a hundred waited for ever where the FIFO was opened for writing before the process opened it.
  for (let time = 0; time < 300; time++) {
    const keeper = new DescriptorKeeper(place);
    const held = keeper.hold('early', [fd]);
    keeper.release('early');
    await held;
    keeper.close();
  }
  closeSync(fd);
  await untilKeepers(place, 0);
});

test('the next process gets copies of what is held, and nothing that was released', async () => {
  const place = join(dir, 'handed-on');
  const keeper = new DescriptorKeeper(place);
  const names = Array.from({ length: 200 }, (_, i) => `held${i}`);
  await Promise.all(names.map((name) => fill(keeper, name, `text of ${name}`)));
  for (const name of names.slice(1, 150)) keeper.release(name);
  // The later one of two entries of a name counts.
  keeper.release('held0');
  rmSync(join(dir, 'held0'));
  await fill(keeper, 'held0', 'new text');
  keeper.release('held199');
  for (const attempt of ['first', 'second']) {
    const found = await new DescriptorKeeper(place).earlier();
    assert.deepEqual([...found.keys()].sort(), ['held0', ...names.slice(150, 199)].sort(), attempt);
    for (const fds of found.values()) for (const fd of fds) closeSync(fd);
  }
  const found = await new DescriptorKeeper(place).earlier();
  const bytes = Buffer.alloc(100);
  const [newest = -1] = found.get('held0') ?? [];
  assert.equal(bytes.toString('utf8', 0, readSync(newest, bytes, 0, 100, null)), 'new text');
  for (const fds of found.values()) for (const fd of fds) closeSync(fd);
  // The first one's queue is as it was: what is stale is swept out of it, what is held stays.
  for (const name of names.slice(150)) keeper.release(name);
  keeper.release('held0');
  keeper.close();
  await untilKeepers(place, 0);
  assert.deepEqual(await new DescriptorKeeper(place).earlier(), new Map());
  assert.deepEqual(readdirSync(place), []);
});
