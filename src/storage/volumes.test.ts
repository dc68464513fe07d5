import assert from 'node:assert/strict';
import {
  chmodSync,
  chownSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { describeTree } from '../../test/support/describe-tree.js';
import { createWorkerPool } from '../workers/pool.js';
import { notFound } from '../errors/engine-error.js';
import { Volumes } from './volumes.js';

const temp = mkdtempSync(join(tmpdir(), 'volumes-'));
const workers = createWorkerPool({ maxThreads: 1 });
const plugins = {
  known: [],
  nameOf: (name: string) => name,
  find: (name: string) => Promise.reject(notFound(`plugin "${name}" not found`)),
  installed: () => Promise.resolve([]),
};
after(async () => {
  await workers.close();
  rmSync(temp, { recursive: true });
});

async function open(name: string): Promise<Volumes> {
  const volumes = new Volumes({ root: join(temp, name), workers, plugins });
  await volumes.load();
  return volumes;
}

test('volumes are made once, outlive the daemon and are removed with their files', async () => {
  const volumes = await open('life');
  const [first, second] = await Promise.all([
    volumes.ensure({ name: 'data', labels: { a: 'b' } }),
    volumes.ensure({ name: 'data' }),
  ]);
  assert.deepEqual([first.created, second.created], [true, false]);
  assert.match(first.createdAt, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  assert.deepEqual([first.labels, first.options, first.isAnonymous], [{ a: 'b' }, null, false]);
  const anonymous = await volumes.ensure({ name: '' });
  assert.match(anonymous.name, /^[0-9a-f]{64}$/);
  assert.deepEqual(anonymous.labels, { 'com.docker.volume.anonymous': '' });
  writeFileSync(join(first.mountpoint, 'file'), 'four');
  // The directory, the record and the file in blocks of the disk.
  assert.ok((await volumes.size('data')) >= 4096);

  const again = await open('life');
  assert.deepEqual(
    again
      .list()
      .map(({ name }) => name)
      .sort(),
    [anonymous.name, 'data'].sort(),
  );
  assert.deepEqual(again.get('data'), volumes.get('data'));
  assert.equal(again.isAnonymous(anonymous.name), true);
  await again.remove('data');
  assert.throws(() => again.get('data'), { kind: 'not-found', message: 'get data: no such volume' });
  await assert.rejects(again.remove('data'), { kind: 'not-found' });
  assert.deepEqual(readdirSync(join(temp, 'life')), [anonymous.name]);
});

test('bad names, drivers and options are refused', async () => {
  const volumes = await open('bad');
  for (const name of ['a', '../x', 'a/b', '.hidden', 'é', 'x'.repeat(256)])
    await assert.rejects(volumes.ensure({ name }), { kind: 'invalid' }, name);
  await assert.rejects(volumes.ensure({ name: 'ok', driver: 'nfs' }), { kind: 'not-found' });
  await assert.rejects(volumes.ensure({ name: 'ok', options: { bogus: '1' } }), { kind: 'invalid' });
  await assert.rejects(volumes.ensure({ name: 'ok', options: { type: 'nfs' } }), {
    kind: 'invalid',
    message: 'create ok: missing required option: "device"',
  });
  assert.deepEqual(readdirSync(join(temp, 'bad')), []);
});

test('what a crash left is deleted, a volume without its record keeps its files', async () => {
  const root = join(temp, 'crash');
  for (const name of ['.new-x/_data', '.removed-y/_data', 'lost/_data'])
    mkdirSync(join(root, name), { recursive: true });
  const volumes = new Volumes({ root, workers, plugins });
  const { removed, damaged } = await volumes.load();
  assert.deepEqual([removed.toSorted(), damaged], [['.new-x', '.removed-y'], ['lost']]);
  await assert.rejects(volumes.ensure({ name: 'lost' }), { kind: 'conflict' });
  assert.deepEqual(readdirSync(root), ['lost']);
});

test("a new volume gets the image's files with their attributes, and nothing from outside the image", async () => {
  const volumes = await open('populate');
  const rootfs = join(temp, 'rootfs');
  mkdirSync(join(rootfs, 'srv/data/sub'), { recursive: true });
  writeFileSync(join(rootfs, 'srv/data/file'), 'content');
  linkSync(join(rootfs, 'srv/data/file'), join(rootfs, 'srv/data/sub/same'));
  symlinkSync('/etc/passwd', join(rootfs, 'srv/data/link'));
  chownSync(join(rootfs, 'srv/data/file'), 5, 6);
  chmodSync(join(rootfs, 'srv/data/file'), 0o4711);
  chownSync(join(rootfs, 'srv/data'), 33, 34);
  chmodSync(join(rootfs, 'srv/data'), 0o750);
  utimesSync(join(rootfs, 'srv/data/sub'), 1000, 1000);
  symlinkSync('/srv', join(rootfs, 'link'));
  symlinkSync('data', join(rootfs, 'srv/last'));
  symlinkSync('/etc', join(rootfs, 'outside'));

  for (const destination of ['/srv/data', '/link/last/']) {
    const { name, mountpoint } = await volumes.ensure({ name: '' });
    await volumes.populate({ root: mountpoint, path: '' }, '', { rootfs, destination });
    assert.deepEqual(
      describeTree(mountpoint, { directoryTimes: true }),
      describeTree(join(rootfs, 'srv/data'), { directoryTimes: true }),
    );
    rmSync(join(mountpoint, 'sub'), { recursive: true });
    await volumes.populate({ root: mountpoint, path: '' }, '', { rootfs, destination });
    assert.equal(existsSync(join(mountpoint, 'sub')), false, 'a volume with content is left alone');
    await volumes.remove(name);
  }
  for (const destination of ['/outside', '/missing', '/srv/data/file', '/../../etc']) {
    const { mountpoint } = await volumes.ensure({ name: '' });
    await volumes.populate({ root: mountpoint, path: '' }, '', { rootfs, destination });
    assert.deepEqual(readdirSync(mountpoint), [], destination);
    assert.equal(lstatSync(mountpoint).mode & 0o7777, 0o755);
  }
});
