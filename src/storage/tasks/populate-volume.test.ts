import assert from 'node:assert/strict';
import fs, { existsSync, linkSync, mkdirSync, mkdtempSync, renameSync, rmSync, statSync, symlinkSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test, type TestContext } from 'node:test';
import { makeFifo } from '../../sys/files/inode.js';
import { populateVolume } from './populate-volume.js';

const temp = mkdtempSync(join(tmpdir(), 'populate-'));
after(() => rmSync(temp, { recursive: true }));

/** After a call that makes or changes a file of the volume, a container puts a link in its place. */
function swapAfter(t: TestContext, call: 'mkdirSync' | 'lchownSync', file: string, target: string): void {
  const real = fs[call] as (...args: unknown[]) => unknown;
  t.mock.method(fs, call, (...args: unknown[]) => {
    const made = real(...args);
    if (existsSync(file) && !existsSync(`${file}.away`)) {
      renameSync(file, `${file}.away`);
      symlinkSync(target, file);
    }
    return made;
  });
  syncBuiltinESMExports();
  t.after(() => {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  });
}

function places(name: string): { readonly rootfs: string; readonly root: string; readonly host: string } {
  const [rootfs, root, host] = ['image/data', 'volume', 'host'].map((path) => join(temp, name, path));
  for (const path of [rootfs, root, host]) mkdirSync(path ?? '', { recursive: true, mode: 0o700 });
  return { rootfs: join(temp, name, 'image'), root: root ?? '', host: host ?? '' };
}

const populate = (rootfs: string, root: string): void =>
  populateVolume({ rootfs, destination: '/data', volume: { root, path: '' }, subpath: '' });

test('a link in the place of a directory that was made leads no copy out of the volume', (t) => {
  const { rootfs, root, host } = places('directory');
  mkdirSync(join(rootfs, 'data/sub'), { mode: 0o777 });
  fs.writeFileSync(join(rootfs, 'data/sub/planted'), 'planted');
  linkSync(join(rootfs, 'data/sub/planted'), join(rootfs, 'data/sub/second'));
  swapAfter(t, 'mkdirSync', join(root, 'sub'), host);
  assert.throws(() => populate(rootfs, root), /into the volume/);
  assert.deepEqual(fs.readdirSync(host), []);
  assert.equal(statSync(host).mode & 0o777, 0o700);
});

test('a link in the place of a file that was made gets no mode', (t) => {
  const { rootfs, root, host } = places('node');
  makeFifo(join(rootfs, 'data/pipe'));
  fs.chmodSync(join(rootfs, 'data/pipe'), 0o666);
  swapAfter(t, 'lchownSync', join(root, 'pipe'), host);
  assert.throws(() => populate(rootfs, root), /was replaced while it was made/);
  assert.equal(statSync(host).mode & 0o777, 0o700);
});
