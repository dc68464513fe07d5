/** The export of a container's files, and the way back through import. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { describeTree } from '../support/describe-tree.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call } from '../support/http.js';
import { everyFileType, tarOf } from '../support/image-builder.js';

const onDockerd = process.env['ENGINE_UNDER_TEST'] === 'dockerd';
const cleanup = new Cleanup();
const temp = mkdtempSync(join(tmpdir(), 'export-test-'));
let engine: Engine;
let image: string;

before(async () => {
  cleanup.add(async () => rmSync(temp, { recursive: true, force: true }));
  ({ engine, image } = await startEngineWithImage(cleanup));
});
after(() => cleanup.run());

const ok = (...args: string[]): Promise<string> => engineOk(engine, args);
const exported = async (container: string): Promise<Buffer> =>
  (await call(engine.socketPath, 'GET', `/containers/${container}/export`)).body;
const names = (tar: Buffer): string[] =>
  execFileSync('tar', ['-t'], { input: tar, encoding: 'utf8', maxBuffer: 1 << 26 })
    .split('\n')
    .filter(Boolean);

test('running and stopped, the tar holds the root file system without what is mounted in it', async () => {
  await ok(
    'run',
    '-d',
    '--name',
    'one',
    '-v',
    '/vol',
    '--tmpfs',
    '/tf',
    image,
    'sh',
    '-c',
    'echo v >/vol/inside; echo t >/tf/inside; echo d >/done; exec sleep 1000',
  );
  while ((await attempt(engine, ['exec', 'one', 'test', '-e', '/done'])).status !== 0);
  const running = names(await exported('one'));
  for (const name of ['bin/busybox', 'etc/passwd', 'done', 'vol/', 'tf/']) assert.ok(running.includes(name), name);
  for (const name of ['vol/inside', 'tf/inside', 'proc/1/', './']) assert.equal(running.includes(name), false, name);
  await ok('kill', 'one');
  assert.deepEqual(names(await exported('one')), running);
  await ok('rm', '-v', 'one');
});

test('an import of the export has the same files, with owners, modes, links and devices', async () => {
  await ok('create', '--name', 'two', image, 'true');
  const tar = tarOf(everyFileType());
  assert.equal((await call(engine.socketPath, 'PUT', '/containers/two/archive?path=/tmp', { body: tar })).status, 200);
  const file = join(temp, 'two.tar');
  await ok('export', '-o', file, 'two');
  const id = await ok('import', '-c', 'CMD ["cat","/tmp/types/plain"]', file, 'round:trip');
  assert.match(id, /^sha256:/);
  assert.equal(await ok('run', '--rm', 'round:trip'), 'plain');
  await ok('create', '--name', 'three', 'round:trip');
  const trees = await Promise.all(
    ['two', 'three'].map(async (name) => {
      const dir = join(temp, name);
      execFileSync('mkdir', [dir]);
      execFileSync('tar', ['--xattrs', '--xattrs-include=*', '-xpf', '-', '-C', dir], { input: await exported(name) });
      return describeTree(dir);
    }),
  );
  if (!onDockerd) assert.deepEqual(trees[1], trees[0]);
  await ok('rm', 'two', 'three');
});

test('errors', async () => {
  const reply = await call(engine.socketPath, 'GET', '/containers/nosuch/export');
  assert.deepEqual([reply.status, reply.text], [404, '{"message":"No such container: nosuch"}\n']);
});
