/** The layer store with the driver overlay2: what only overlayfs does, and where things are on the disk. Needs root. */
import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, readlinkSync, renameSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { storageDriver } from '../../src/storage/drivers/index.js';
import { detachMount, mountFileSystem } from '../../src/sys/mount/mount.js';
import { DriverHarness } from '../support/driver-contract/harness.js';
import { tarOf } from '../support/image-builder.js';

const h = new DriverHarness(storageDriver('overlay2'));
after(() => h.close());

test('data roots of earlier versions are read: names and links on the disk stay what they were', async () => {
  const store = await h.newStore('layout');
  const top = await h.addLayers(store, [[{ path: 'a', content: 'a' }]]);
  await store.createWritable('c', top);
  await store.createWritable('bare', undefined);
  const at = (...parts: string[]): string => join(h.temp, 'layout', ...parts);
  const list = (...parts: string[]): string[] => readdirSync(at(...parts)).sort();
  assert.deepEqual(list(), ['empty', 'index', 'layers', 'staging', 'trash', 'unsynced', 'writable']);
  const [name = ''] = list('layers');
  assert.match(name, /^[0-9a-z]{6}$/);
  assert.deepEqual(list('layers', name), ['diff', 'init', 'tar-split']);
  assert.deepEqual(list('layers', name, 'diff'), ['a']);
  assert.deepEqual(list('unsynced'), [name]);
  assert.deepEqual(list('index'), [`${top.slice('sha256:'.length)}.json`]);
  assert.deepEqual(JSON.parse(readFileSync(at('index', list('index')[0] ?? ''), 'utf8')), {
    version: 1,
    value: { shortId: name, chainId: top, diffId: top, parent: null, sizeBytes: 1 },
  });
  assert.deepEqual(list('writable/c'), ['diff', 'merged', 'parent', 'work']);
  assert.equal(readlinkSync(at('writable/c/parent')), top);
  assert.deepEqual(list('writable/bare'), ['diff', 'init', 'merged', 'parent', 'work']);
  assert.equal(readlinkSync(at('writable/bare/parent')), 'none');
});

test('a mount is found again by the next daemon, also under another name of the data root', async () => {
  const store = await h.newStore('counted');
  const top = await h.addLayers(store, [
    [
      { path: 'a', content: 'a' },
      { path: 'dir/', type: 'directory' },
    ],
  ]);
  await store.createWritable('c', top);
  const root = await store.mount('c');
  assert.throws(() => renameSync(join(root, 'dir'), join(root, 'moved')), { code: 'EXDEV' });
  symlinkSync('counted', join(h.temp, 'other-name'));
  const again = await h.open('other-name');
  await again.load();
  again.retain(top);
  assert.equal(await again.mount('c'), root);
  assert.equal(readFileSync('/proc/self/mounts', 'utf8').split(root).length, 2, 'mounted once');
  await again.unmount('c');
  assert.deepEqual(readdirSync(root), []);
  assert.deepEqual(Object.keys(again.graphData('c') ?? {}), ['LowerDir', 'MergedDir', 'UpperDir', 'WorkDir']);
  await again.removeWritable('c');
  await again.close();
});

test('a full disk is reported as such', async () => {
  const store = await h.newStore('full');
  const small = join(h.temp, 'full/staging');
  await mountFileSystem('tmpfs', small, 'tmpfs', 'size=1m');
  try {
    const tar = tarOf([{ path: 'big', content: Buffer.alloc(4 << 20, 1) }]);
    await assert.rejects(h.addTar(store, undefined, tar), {
      kind: 'internal',
      code: 'ENOSPC',
      message: 'unpacking "big": no space left on device',
    });
    assert.deepEqual(readdirSync(join(h.temp, 'full/layers')), []);
  } finally {
    await detachMount(small);
  }
});

test('a removal returns while the tree is still being deleted', async () => {
  const store = await h.newStore('removal');
  const isTrashEmpty: boolean[] = [];
  // On a busy machine this thread may sleep until the tree is gone. Were it waited for, that would be so each time.
  while (isTrashEmpty.length < 20 && !isTrashEmpty.includes(false)) {
    await h.mounted(store, 'big', undefined, (root) => {
      for (let i = 0; i < 2_000; i++) writeFileSync(join(root, String(i)), '');
    });
    await store.removeWritable('big');
    isTrashEmpty.push(readdirSync(join(h.temp, 'removal/trash')).length === 0);
    assert.deepEqual(store.writableIds(), []);
    assert.equal(existsSync(join(h.temp, 'removal/writable/big')), false);
  }
  assert.ok(isTrashEmpty.includes(false));
});
