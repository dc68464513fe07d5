/** The layer store with real overlay mounts. Needs root. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import {
  chmodSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  renameSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { buffer } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { isEngineError } from '../../src/errors/engine-error.js';
import type { Logger } from '../../src/ports/logger.js';
import type { Digest, LayerInfo } from '../../src/ports/storage.js';
import { storageDriver } from '../../src/storage/drivers/index.js';
import { type DriverLayerStore, openLayerStore } from '../../src/storage/layers/layer-store.js';
import { Durability } from '../../src/storage/layers/durability.js';
import { LayerExtractor } from '../../src/storage/tar/layer-extractor.js';
import { detachMount, mountFileSystem } from '../../src/sys/mount/mount.js';
import { createWorkerPool } from '../../src/workers/pool.js';
import { describeTree, withoutInit } from '../support/describe-tree.js';
import { type LayerEntry, sha256, tarOf } from '../support/image-builder.js';
import { randomLayers } from '../support/random-layers.js';

const temp = mkdtempSync(join(tmpdir(), 'storage-'));
const workers = createWorkerPool({ maxThreads: 2 });
const driver = storageDriver('');
const stores: DriverLayerStore[] = [];
const log: Logger = {
  debug: () => undefined,
  info: () => undefined,
  warn: assert.fail,
  error: assert.fail,
  child: () => log,
};

after(async () => {
  for (const store of stores) await closeStore(store);
  await workers.close();
  const mounts = readFileSync('/proc/self/mounts', 'utf8');
  rmSync(temp, { recursive: true });
  assert.equal(mounts.includes(temp), false, 'something stays mounted');
});

async function newStore(name: string): Promise<DriverLayerStore> {
  const store = await openLayerStore({ driver, root: join(temp, name), workers, log });
  stores.push(store);
  await store.load();
  return store;
}

async function closeStore(store: DriverLayerStore): Promise<void> {
  for (const id of store.writableIds()) await store.removeWritable(id);
  await store.close();
}

async function addTar(store: DriverLayerStore, parent: Digest | undefined, tar: Buffer): Promise<LayerInfo> {
  const staged = await store.stage();
  try {
    const extractor = new LayerExtractor(staged);
    extractor.write(tar);
    const { sizeBytes, implicitDirs, danglingLinks, whiteouts } = extractor.finish();
    return await staged.commit({ diffId: sha256(tar), parent, sizeBytes, implicitDirs, danglingLinks, whiteouts });
  } catch (error) {
    await staged.discard();
    throw error;
  }
}

/** Adds layers from the lowest up and takes a reference on the top. */
async function addLayers(store: DriverLayerStore, layers: readonly (readonly LayerEntry[])[]): Promise<Digest> {
  let parent: Digest | undefined;
  for (const entries of layers) parent = (await addTar(store, parent, tarOf(entries))).chainId;
  assert.ok(parent);
  store.retain(parent);
  return parent;
}

async function mounted<T>(
  store: DriverLayerStore,
  id: string,
  parent: Digest | undefined,
  work: (root: string) => T | Promise<T>,
): Promise<T> {
  if (!store.writableIds().includes(id)) await store.createWritable(id, parent);
  const root = await store.mount(id);
  try {
    return await work(root);
  } finally {
    await store.unmount(id);
  }
}

test('whiteouts, opaque directories, implicit directories and hard links across layers', async () => {
  const store = await newStore('merge');
  const top = await addLayers(store, [
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
  await mounted(store, 'merge', top, (root) => {
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
});

test('random layers merge to the tree of a serial unpack, and their tars come back byte by byte', async () => {
  const store = await newStore('random');
  for (let seed = 1; seed <= 12; seed++) {
    const model = join(temp, `model-${seed}`);
    const layers = randomLayers(seed, model);
    const top = await addLayers(store, layers);
    await mounted(store, `random-${seed}`, top, (root) =>
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
});

test('the tar of a damaged layer fails, and one that is not read to the end leaves nothing open', async () => {
  const store = await newStore('stream');
  const big = tarOf([{ path: 'big', content: Buffer.alloc(8 << 20, 7) }]);
  const { chainId } = await addTar(store, undefined, big);
  for (const destroyAfter of [0, 1]) {
    const stream = store.tarStream(chainId) as Readable;
    for (let i = 0; i < destroyAfter; i++) await once(stream, 'readable');
    stream.destroy();
    await once(stream, 'close');
  }
  assert.deepEqual(await buffer(store.tarStream(chainId)), big);
  const file = join(temp, 'stream/layers', readdirSync(join(temp, 'stream/layers'))[0] ?? '', 'diff/big');
  writeFileSync(file, Buffer.alloc(8 << 20, 8));
  await assert.rejects(buffer(store.tarStream(chainId)), { kind: 'data-loss' });
  writeFileSync(file, 'short');
  await assert.rejects(buffer(store.tarStream(chainId)), { kind: 'data-loss' });
  rmSync(file);
  await assert.rejects(buffer(store.tarStream(chainId)), { kind: 'data-loss' });
  store.retain(chainId);
  assert.deepEqual(await store.release(chainId), [chainId], 'no stream holds the layer');
});

test('126 layers can be mounted', async () => {
  const store = await newStore(`deep-${'x'.repeat(100)}`);
  const top = await addLayers(
    store,
    Array.from({ length: 126 }, (_, i) => [{ path: `file${i}`, content: String(i) }]),
  );
  const id = 'f'.repeat(64);
  await mounted(store, id, top, (root) => {
    assert.equal(withoutInit(readdirSync(root)).length, 126);
    assert.equal(readFileSync(join(root, 'file0'), 'utf8'), '0');
    writeFileSync(join(root, 'own'), 'x');
  });
  assert.equal(store.chainSize(top), 10 + 90 * 2 + 26 * 3);
  await store.removeWritable(id);
  assert.equal((await store.release(top)).length, 126);
});

test('an empty root can be mounted, written and committed', async () => {
  const store = await newStore('empty');
  await mounted(store, 'e', undefined, (root) => {
    assert.deepEqual(withoutInit(readdirSync(root)), []);
    assert.equal(readlinkSync(join(root, 'etc/mtab')), '/proc/mounts');
    writeFileSync(join(root, 'a'), 'abc');
  });
  const layer = await store.commitWritable('e');
  assert.equal(layer.parent, undefined);
  assert.equal(layer.sizeBytes, 3);
  assert.deepEqual(await store.changes('e'), [{ path: '/a', kind: 1 }]);
  assert.equal(await store.writableSize('e'), 3);
});

test('mounts are counted and survive a restart of the daemon', async () => {
  const store = await newStore('counted');
  const top = await addLayers(store, [[{ path: 'a', content: 'a' }]]);
  await store.createWritable('c', top);
  await assert.rejects(store.createWritable('c', top), (error) => isEngineError(error, 'conflict'));
  const root = await store.mount('c');
  assert.equal(await store.mount('c'), root);
  await store.unmount('c');
  assert.deepEqual(withoutInit(readdirSync(root)), ['a']);
  symlinkSync('counted', join(temp, 'other-name'));
  const again = await openLayerStore({ driver, root: join(temp, 'other-name'), workers, log });
  await again.load();
  again.retain(top);
  assert.equal(await again.mount('c'), root);
  assert.equal(readFileSync('/proc/self/mounts', 'utf8').split(root).length, 2, 'mounted once');
  await again.unmount('c');
  assert.deepEqual(readdirSync(root), []);
  assert.deepEqual(again.writableIds(), ['c']);
  assert.deepEqual(Object.keys(again.graphData('c')), ['LowerDir', 'MergedDir', 'UpperDir', 'WorkDir']);
  await again.removeWritable('c');
  await again.removeWritable('c');
  await again.close();
  await assert.rejects(again.mount('c'), (error) => isEngineError(error, 'not-found'));
});

test('the root directory of a container has the attributes of its image', async () => {
  const store = await newStore('root');
  const top = await addLayers(store, [
    [{ path: './', type: 'directory', mode: 0o711, uid: 7, gid: 8 }],
    [{ path: 'x' }],
  ]);
  await mounted(store, 'r', top, (root) => {
    const stat = lstatSync(root);
    assert.deepEqual([stat.mode & 0o7777, stat.uid, stat.gid], [0o711, 7, 8]);
  });
});

test('references keep layers; the last release removes them from the disk', async () => {
  const store = await newStore('references');
  const base = (await addTar(store, undefined, tarOf([{ path: 'base' }]))).chainId;
  const one = (await addTar(store, base, tarOf([{ path: 'one' }]))).chainId;
  const two = (await addTar(store, base, tarOf([{ path: 'two' }]))).chainId;
  store.retain(one);
  store.retain(one);
  store.retain(two);
  assert.deepEqual(await store.release(one), []);
  assert.deepEqual(await store.release(one), [one]);
  assert.ok(store.find(base));
  assert.deepEqual(await store.release(two), [two, base]);
  assert.equal(store.find(base), undefined);
  assert.deepEqual(readdirSync(join(temp, 'references/layers')), []);
  assert.deepEqual(readdirSync(join(temp, 'references/index')), []);
  await addTar(store, undefined, tarOf([{ path: 'base' }]));
  assert.deepEqual(await store.collect(), [base]);
});

test('of equal layers committed at once one stays, whoever wins', async () => {
  const store = await newStore('race');
  const tar = tarOf([{ path: 'a', content: 'a' }]);
  const layers = await Promise.all(Array.from({ length: 8 }, () => addTar(store, undefined, tar)));
  assert.equal(new Set(layers.map(({ chainId }) => chainId)).size, 1);
  assert.equal(readdirSync(join(temp, 'race/layers')).length, 1);
  assert.equal(readdirSync(join(temp, 'race/index')).length, 1);
  const [first] = layers;
  assert.ok(first);
  store.retain(first.chainId);
  // A removal and a new arrival of the same layer, in every order that may happen.
  const [released] = await Promise.all([store.release(first.chainId), addTar(store, undefined, tar)]);
  assert.deepEqual(released, [first.chainId]);
  const again = await openLayerStore({ driver, root: join(temp, 'race'), workers, log });
  assert.deepEqual((await again.load()).removed, []);
  assert.equal(again.find(first.chainId) !== undefined, store.find(first.chainId) !== undefined);
  await again.close();
});

test('a hard link to nowhere is refused and leaves nothing', async () => {
  const store = await newStore('nowhere');
  const base = (await addTar(store, undefined, tarOf([{ path: 'deleted' }, { path: 'dir/', type: 'directory' }])))
    .chainId;
  const middle = (await addTar(store, base, tarOf([{ path: '.wh.deleted' }]))).chainId;
  for (const target of ['missing', 'deleted', 'dir', 'dir/missing']) {
    const tar = tarOf([{ path: 'link', type: 'link', target }]);
    await assert.rejects(addTar(store, middle, tar), { kind: 'invalid' }, target);
  }
  assert.equal(readdirSync(join(temp, 'nowhere/layers')).length, 2);
  assert.deepEqual(readdirSync(join(temp, 'nowhere/staging')), []);
});

test('what a crash leaves half made is removed and reported by the next load', async () => {
  const store = await newStore('crash');
  const base = (await addTar(store, undefined, tarOf([{ path: 'a' }]))).chainId;
  const top = (await addTar(store, base, tarOf([{ path: 'b' }]))).chainId;
  const lonely = (await addTar(store, undefined, tarOf([{ path: 'c' }]))).chainId;
  const root = join(temp, 'crash');
  const staged = await store.stage();
  writeFileSync(join(staged.diffDir, 'half'), 'x');
  mkdirSync(join(root, 'layers/zzzzzz/diff'), { recursive: true });
  mkdirSync(join(root, 'writable/half/diff'), { recursive: true });
  mkdirSync(join(root, 'trash/old/deep'), { recursive: true });
  writeFileSync(join(root, 'index/x.json.tmp-0123456789ab'), '{"ver');
  rmSync(join(root, 'index', `${lonely.slice(7)}.json`));
  const again = await openLayerStore({ driver, root, workers, log });
  const { removed } = await again.load();
  assert.equal(removed.length, 5, removed.join(', '));
  assert.ok(again.find(base) && again.find(top));
  assert.equal(again.find(lonely), undefined);
  await again.close();
  for (const name of ['staging', 'trash', 'writable']) assert.deepEqual(readdirSync(join(root, name)), [], name);
  assert.equal(readdirSync(join(root, 'layers')).length, 2);

  rmSync(join(root, 'index', `${base.slice(7)}.json`));
  const third = await openLayerStore({ driver, root, workers, log });
  assert.equal((await third.load()).removed.length, 3, 'a layer without its parent, and both directories');
  await third.close();
});

test('after a power cut a layer that was torn is gone, one that is whole stays', async () => {
  const root = join(temp, 'power');
  const store = await newStore('power');
  const whole = await addLayers(store, [[{ path: 'a', content: 'whole' }]]);
  const torn = await addLayers(store, [[{ path: 'b', content: 'torn' }]]);
  const marks = readdirSync(join(root, 'unsynced'));
  assert.equal(marks.length, 2);
  for (const name of marks) {
    writeFileSync(join(root, 'unsynced', name), 'another boot');
    if (existsSync(join(root, 'layers', name, 'diff/b'))) writeFileSync(join(root, 'layers', name, 'diff/b'), '');
  }
  const again = await openLayerStore({ driver, root, workers, log });
  const { removed } = await again.load();
  assert.equal(removed.length, 2, removed.join());
  assert.ok(again.find(whole));
  assert.equal(again.find(torn), undefined);
  await again.close();
  const durability = new Durability(join(root, 'unsynced'), workers, log);
  assert.equal((await durability.load()).length, 1, 'the mark of what is gone went with it');
  await durability.sync();
  assert.deepEqual(readdirSync(join(root, 'unsynced')), []);
});

test('a full disk is reported as such', async () => {
  const store = await newStore('full');
  const small = join(temp, 'full/staging');
  await mountFileSystem('tmpfs', small, 'tmpfs', 'size=1m');
  try {
    const tar = tarOf([{ path: 'big', content: Buffer.alloc(4 << 20, 1) }]);
    await assert.rejects(addTar(store, undefined, tar), {
      kind: 'internal',
      code: 'ENOSPC',
      message: 'unpacking "big": no space left on device',
    });
    assert.deepEqual(readdirSync(join(temp, 'full/layers')), []);
  } finally {
    await detachMount(small);
  }
});

test('the changes of a container, and the layer that a commit makes of them', async () => {
  const store = await newStore('commit');
  const top = await addLayers(store, [
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
  const before = await mounted(store, 'c', top, (root) => {
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
    assert.throws(() => renameSync(join(root, 'var/moved'), join(root, 'var/elsewhere')), { code: 'EXDEV' });
    return withoutInit(describeTree(root)).map((line) => line.replace(/mtime (\d+)\d{9}/, 'mtime $1000000000'));
  });
  const byPath = new Map((await store.changes('c')).map(({ path, kind }) => [path, kind]));
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
  const now = await mounted(store, 'd', layer.chainId, (root) =>
    withoutInit(describeTree(root)).map((line) => line.replace(/mtime (\d+)\d{9}/, 'mtime $1000000000')),
  );
  assert.deepEqual(now, before);
});

test('a removal returns while the tree is still being deleted', async () => {
  const store = await newStore('removal');
  await mounted(store, 'big', undefined, (root) => {
    for (let i = 0; i < 2_000; i++) writeFileSync(join(root, String(i)), '');
  });
  const start = performance.now();
  await store.removeWritable('big');
  assert.ok(performance.now() - start < 100);
  assert.deepEqual(store.writableIds(), []);
  assert.equal(existsSync(join(temp, 'removal/writable/big')), false);
});
