/** Tests of drivers: the files of layers and containers, their tars and their changes. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import type { Digest } from '../../../src/ports/storage.js';
import type { DriverLayerStore } from '../../../src/storage/layers/layer-store.js';
import { MAX_DEPTH } from '../../../src/storage/layers/read-only-layers.js';
import { detachMount } from '../../../src/sys/mount/mount.js';
import { describeTree, withoutInit } from '../describe-tree.js';
import { sha256, tarOf } from '../image-builder.js';
import { randomLayers } from '../random-layers.js';
import { type DriverHarness, type DriverTests, MOUNTABLE_DEPTH } from './harness.js';

/** A path of such a length makes the options of a deep mount long. */
const DEEP = `deep-${'x'.repeat(100)}`;

export const FILE_TESTS: DriverTests = {
  async 'whiteouts, opaque directories, implicit directories and hard links across layers'(h) {
    const store = await h.newStore('merge');
    const top = await h.addLayers(store, [
      [
        { path: 'etc/', type: 'directory', mode: 0o751, uid: 3, gid: 4, mtime: 1_000_000 },
        { path: 'etc/passwd', content: 'root', mode: 0o640, uid: 1, gid: 2, mtime: 1_000_001 },
        { path: 'etc/gone', content: 'x' },
        { path: 'etc/opaque/', type: 'directory', mode: 0o700 },
        { path: 'etc/opaque/old', content: 'old' },
        { path: 'etc/again/', type: 'directory' },
        { path: 'etc/again/old', content: 'old' },
        { path: 'bin/tool', content: 'tool', mode: 0o4755 },
        { path: 'link', type: 'symlink', target: 'etc/passwd' },
      ],
      [
        { path: 'etc/.wh.gone' },
        { path: 'etc/opaque/', type: 'directory', mode: 0o755 },
        { path: 'etc/opaque/.wh..wh..opq' },
        { path: 'etc/opaque/new', content: 'new' },
        { path: 'etc/.wh.again' },
        { path: 'etc/again/', type: 'directory' },
        { path: 'etc/again/new', content: 'new' },
        { path: 'bin/tool2', type: 'link', target: 'bin/tool' },
      ],
      [{ path: 'etc/added', content: 'added' }],
    ]);
    await h.mounted(store, 'merge', top, (root) => {
      assert.deepEqual(withoutInit(readdirSync(join(root, 'etc')).map((name) => `etc/${name}`)).sort(), [
        'etc/added',
        'etc/again',
        'etc/opaque',
        'etc/passwd',
      ]);
      assert.deepEqual(readdirSync(join(root, 'etc/opaque')), ['new']);
      assert.deepEqual(readdirSync(join(root, 'etc/again')), ['new']);
      const etc = lstatSync(join(root, 'etc'));
      assert.deepEqual([etc.mode & 0o7777, etc.uid, etc.gid, etc.mtimeMs], [0o751, 3, 4, 1_000_000_000]);
      const [tool, tool2] = [lstatSync(join(root, 'bin/tool')), lstatSync(join(root, 'bin/tool2'))];
      assert.equal(tool.ino, tool2.ino);
      assert.equal(tool.mode & 0o7777, 0o4755);
      assert.equal(readFileSync(join(root, 'link'), 'utf8'), 'root');
    });
    await store.removeWritable('merge');
  },

  async 'random layers merge to the tree of a serial unpack, and their tars come back byte by byte'(h) {
    const store = await h.newStore('random');
    for (let seed = 1; seed <= h.sizes.chains; seed++) {
      const model = join(h.temp, `model-${seed}`);
      const layers = randomLayers(seed, model, h.can('hide circles of links'));
      const top = await h.addLayers(store, layers);
      await h.mounted(store, `random-${seed}`, top, (root) =>
        assert.deepEqual(withoutInit(describeTree(root)), describeTree(model), `seed ${seed}`),
      );
      let chain: Digest | undefined = top;
      for (const entries of layers.toReversed()) {
        assert.ok(chain);
        assert.deepEqual(await buffer(store.tarStream(chain)), tarOf(entries));
        chain = store.find(chain)?.parent;
      }
      await store.removeWritable(`random-${seed}`);
      assert.ok((await store.release(top)).length > 0);
      rmSync(model, { recursive: true });
    }
  },

  async 'the tar of a damaged layer fails, and one that is not read to the end leaves nothing open'(h) {
    const store = await h.newStore('stream');
    const big = tarOf([{ path: 'big', content: Buffer.alloc(8 << 20, 7) }]);
    const { chainId } = await h.addTar(store, undefined, big);
    for (const destroyAfter of [0, 1]) {
      const stream = store.tarStream(chainId);
      for (let i = 0; i < destroyAfter; i++) await once(stream, 'readable');
      stream.destroy();
      await once(stream, 'close');
    }
    assert.deepEqual(await buffer(store.tarStream(chainId)), big);
    const { diffDir, close } = store.openTar(chainId);
    close();
    h.makeWritable(diffDir);
    const file = join(diffDir, 'big');
    writeFileSync(file, Buffer.alloc(8 << 20, 8));
    await assert.rejects(buffer(store.tarStream(chainId)), { kind: 'data-loss' });
    writeFileSync(file, 'short');
    await assert.rejects(buffer(store.tarStream(chainId)), { kind: 'data-loss' });
    rmSync(file);
    await assert.rejects(buffer(store.tarStream(chainId)), { kind: 'data-loss' });
    store.retain(chainId);
    assert.deepEqual(await store.release(chainId), [chainId], 'no stream holds the layer');
  },

  async 'many layers can be mounted, and above the most that may be nothing is sealed'(h) {
    const { depth } = h.sizes;
    const store = await h.newStore(DEEP);
    const top = await h.addLayers(
      store,
      Array.from({ length: depth }, (_, i) => [{ path: `file${i}`, content: String(i) }]),
    );
    const id = 'f'.repeat(64);
    await h.mounted(store, id, top, (root) => {
      assert.equal(withoutInit(readdirSync(root)).length, depth);
      assert.equal(readFileSync(join(root, 'file0'), 'utf8'), '0');
      writeFileSync(join(root, 'own'), 'x');
    });
    assert.equal(store.chainSize(top), Array.from({ length: depth }, (_, i) => i).join('').length);
    await store.removeWritable(id);
    if (depth === MOUNTABLE_DEPTH) await sealTooHigh(h, store, top);
    assert.equal((await store.release(top)).length, depth);
  },

  async 'an empty root can be mounted, written and committed'(h) {
    const store = await h.newStore('empty');
    await h.mounted(store, 'e', undefined, (root) => {
      assert.deepEqual(withoutInit(readdirSync(root)), []);
      assert.equal(readlinkSync(join(root, 'etc/mtab')), '/proc/mounts');
      writeFileSync(join(root, 'a'), 'abc');
    });
    const layer = await store.commitWritable('e');
    assert.equal(layer.parent, undefined);
    assert.equal(layer.sizeBytes, 3);
    assert.deepEqual([...(await store.changes('e'))], [{ path: '/a', kind: 1 }]);
    assert.equal(await store.writableSize('e'), 3);
  },

  async 'the root directory of a container has the attributes of its image'(h) {
    const store = await h.newStore('root');
    const top = await h.addLayers(store, [
      [{ path: './', type: 'directory', mode: 0o711, uid: 7, gid: 8 }],
      [{ path: 'x' }],
    ]);
    await h.mounted(store, 'r', top, (root) => {
      const stat = lstatSync(root);
      assert.deepEqual([stat.mode & 0o7777, stat.uid, stat.gid], [0o711, 7, 8]);
    });
  },

  async 'a hard link to nowhere is refused and leaves nothing'(h) {
    const store = await h.newStore('nowhere');
    const base = (await h.addTar(store, undefined, tarOf([{ path: 'deleted' }, { path: 'dir/', type: 'directory' }])))
      .chainId;
    const middle = (await h.addTar(store, base, tarOf([{ path: '.wh.deleted' }]))).chainId;
    for (const target of ['missing', 'deleted', 'dir', 'dir/missing']) {
      const tar = tarOf([{ path: 'link', type: 'link', target }]);
      await assert.rejects(h.addTar(store, middle, tar), { kind: 'invalid' }, target);
    }
    assert.equal(readdirSync(join(h.temp, 'nowhere/layers')).length, 2);
    assert.deepEqual(readdirSync(join(h.temp, 'nowhere/staging')), []);
  },

  async 'the changes of a container, and the layer that a commit makes of them'(h) {
    const store = await h.newStore('commit');
    const top = await h.addLayers(store, [
      [
        { path: 'etc/', type: 'directory' },
        { path: 'etc/passwd', content: 'root' },
        { path: 'etc/group', content: 'root' },
        { path: 'var/', type: 'directory' },
        { path: 'var/cache/', type: 'directory' },
        { path: 'var/cache/big', content: 'x'.repeat(1000) },
        { path: 'var/moved/', type: 'directory' },
        { path: 'var/moved/file', content: 'moved' },
        { path: 'a', content: 'linked' },
      ],
    ]);
    const before = await h.mounted(store, 'c', top, (root) => {
      writeFileSync(join(root, 'etc/passwd'), 'changed');
      rmSync(join(root, 'etc/group'));
      mkdirSync(join(root, 'new/dir'), { recursive: true });
      writeFileSync(join(root, 'new/dir/é'), 'new');
      writeFileSync(join(root, `new/${'long'.repeat(60)}`), 'long');
      chmodSync(join(root, 'new/dir/é'), 0o6751);
      symlinkSync('../etc/passwd', join(root, 'new/link'));
      rmSync(join(root, 'var/cache'), { recursive: true });
      mkdirSync(join(root, 'var/cache'));
      writeFileSync(join(root, 'var/cache/small'), 's');
      writeFileSync(join(root, 'made-and-deleted'), '');
      rmSync(join(root, 'made-and-deleted'));
      return withoutInit(describeTree(root)).map((line) => line.replace(/mtime (\d+)\d{9}/, 'mtime $1000000000'));
    });
    const byPath = new Map([...(await store.changes('c'))].map(({ path, kind }) => [path, kind]));
    assert.equal(byPath.get('/etc/passwd'), 0);
    assert.equal(byPath.get('/etc'), 0);
    assert.equal(byPath.get('/etc/group'), 2);
    assert.equal(byPath.get('/new/dir/é'), 1);
    assert.equal(byPath.get('/var/cache/small'), 1);
    assert.equal(byPath.has('/made-and-deleted'), false);
    assert.equal(byPath.has('/'), false);

    const layer = await store.commitWritable('c');
    store.retain(layer.chainId);
    assert.equal(layer.parent, top);
    assert.equal(layer.sizeBytes, await store.writableSize('c'));
    assert.equal(sha256(await buffer(store.tarStream(layer.chainId))), layer.diffId);
    assert.equal((await store.commitWritable('c')).diffId, layer.diffId, 'equal trees make equal layers');
    const now = await h.mounted(store, 'd', layer.chainId, (root) =>
      withoutInit(describeTree(root)).map((line) => line.replace(/mtime (\d+)\d{9}/, 'mtime $1000000000')),
    );
    assert.deepEqual(now, before);
  },

  async 'the files of an image are mounted read-only'(h) {
    const store = await h.newStore('image');
    const top = await h.addLayers(store, [[{ path: 'a', content: 'a' }, { path: 'b' }], [{ path: '.wh.b' }]]);
    const at = join(h.temp, 'mounted-image');
    mkdirSync(at);
    await store.mountImage(top, at);
    try {
      assert.deepEqual(readdirSync(at), ['a']);
      assert.equal(readFileSync(join(at, 'a'), 'utf8'), 'a');
      assert.throws(() => writeFileSync(join(at, 'a'), 'b'), { code: 'EROFS' });
    } finally {
      await detachMount(at);
    }
  },

  async 'hard links that a container makes are one file in its commit'(h) {
    const store = await h.newStore('links');
    const top = await h.addLayers(store, [[{ path: 'old', content: 'old' }]]);
    await h.mounted(store, 'c', top, (root) => {
      writeFileSync(join(root, 'one'), 'one');
      linkSync(join(root, 'one'), join(root, 'two'));
      renameSync(join(root, 'old'), join(root, 'new'));
    });
    const { chainId, sizeBytes } = await store.commitWritable('c');
    store.retain(chainId);
    assert.equal(sizeBytes, 6);
    await h.mounted(store, 'd', chainId, (root) => {
      assert.equal(lstatSync(join(root, 'one')).ino, lstatSync(join(root, 'two')).ino);
      assert.deepEqual(withoutInit(readdirSync(root)).sort(), ['new', 'one', 'two']);
    });
  },
};

/** A writable layer above as many layers as a store takes does not become one more, and can be removed. */
async function sealTooHigh(h: DriverHarness, store: DriverLayerStore, top: Digest): Promise<void> {
  let highest = top;
  for (let depth = MOUNTABLE_DEPTH; depth < MAX_DEPTH; depth++)
    highest = (await h.addTar(store, highest, tarOf([{ path: `above${depth}` }]))).chainId;
  await store.createBrief('deep', highest, { isBare: true });
  await assert.rejects(store.sealWritable('deep'), { code: 'LAYER_DEPTH' });
  await store.removeWritable('deep');
  assert.deepEqual(store.writableIds(), []);
  assert.deepEqual(store.directories().staging, []);
  await assert.rejects(store.sealWritable('deep'), { kind: 'not-found' });
  assert.equal(existsSync(join(h.temp, DEEP, 'writable/deep')), false);
  assert.equal((await store.collect()).length, MAX_DEPTH - MOUNTABLE_DEPTH);
}
