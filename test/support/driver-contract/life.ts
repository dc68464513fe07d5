/** Tests of drivers: how layers and containers come and go, and what a crash leaves. */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { isEngineError } from '../../../src/errors/engine-error.js';
import { assembleTar } from '../../../src/storage/tar/assemble.js';
import { Durability } from '../../../src/storage/layers/durability.js';
import { withoutInit } from '../describe-tree.js';
import { tarOf } from '../image-builder.js';
import { waitFor } from '../wait.js';
import { type DriverTests, unpack } from './harness.js';

export const LIFE_TESTS: DriverTests = {
  async 'references keep layers; the last release removes them from the disk'(h) {
    const store = await h.newStore('references');
    const base = (await h.addTar(store, undefined, tarOf([{ path: 'base' }]))).chainId;
    const one = (await h.addTar(store, base, tarOf([{ path: 'one' }]))).chainId;
    const two = (await h.addTar(store, base, tarOf([{ path: 'two' }]))).chainId;
    store.retain(one);
    store.retain(one);
    store.retain(two);
    assert.deepEqual(await store.release(one), []);
    assert.deepEqual(await store.release(one), [one]);
    assert.ok(store.find(base));
    assert.deepEqual(await store.release(two), [two, base]);
    assert.equal(store.find(base), undefined);
    assert.deepEqual(readdirSync(join(h.temp, 'references/layers')), []);
    assert.deepEqual(readdirSync(join(h.temp, 'references/index')), []);
    await h.addTar(store, undefined, tarOf([{ path: 'base' }]));
    assert.deepEqual(await store.collect(), [base]);
  },

  async 'of equal layers committed at once one stays, whoever wins'(h) {
    const store = await h.newStore('race');
    const tar = tarOf([{ path: 'a', content: 'a' }]);
    const layers = await Promise.all(Array.from({ length: 8 }, () => h.addTar(store, undefined, tar)));
    assert.equal(new Set(layers.map(({ chainId }) => chainId)).size, 1);
    assert.equal(readdirSync(join(h.temp, 'race/layers')).length, 1);
    assert.equal(readdirSync(join(h.temp, 'race/index')).length, 1);
    const [first] = layers;
    assert.ok(first);
    store.retain(first.chainId);
    // A removal and a new arrival of the same layer, in every order that may happen.
    const [released] = await Promise.all([store.release(first.chainId), h.addTar(store, undefined, tar)]);
    assert.deepEqual(released, [first.chainId]);
    const again = await h.open('race');
    assert.deepEqual((await again.load()).removed, []);
    assert.equal(again.find(first.chainId) !== undefined, store.find(first.chainId) !== undefined);
    await again.close();
  },

  async 'a layer that comes again while those above it go is there at the next start, too'(h) {
    const store = await h.newStore('again');
    const base = [{ path: 'base' }];
    // More than are removed at once, so that the lowest is still in its place when it comes again.
    const above = Array.from({ length: 40 }, (_, at) => [{ path: `above-${at}` }]);
    const top = await h.addLayers(store, [base, ...above]);
    const staged = await store.stage();
    const content = unpack(staged, tarOf(base));
    const [gone, { chainId }] = await Promise.all([
      store.release(top),
      staged.commit({ parent: undefined, ...content }),
    ]);
    assert.deepEqual([gone.length, gone.at(-1)], [41, chainId]);
    assert.ok(store.find(chainId));
    const next = await h.open('again');
    assert.deepEqual((await next.load()).removed, []);
    assert.ok(next.find(chainId));
    await next.close();
    assert.equal(readdirSync(join(h.temp, 'again/layers')).length, 1);
  },

  async 'what a crash leaves half made is removed and reported by the next load'(h) {
    const store = await h.newStore('crash');
    const base = (await h.addTar(store, undefined, tarOf([{ path: 'a' }]))).chainId;
    const top = (await h.addTar(store, base, tarOf([{ path: 'b' }]))).chainId;
    const lonely = (await h.addTar(store, undefined, tarOf([{ path: 'c' }]))).chainId;
    const root = join(h.temp, 'crash');
    const staged = await store.stage(base);
    writeFileSync(join(staged.diffDir, 'half'), 'x');
    mkdirSync(join(root, 'layers/zzzzzz/diff'), { recursive: true });
    mkdirSync(join(root, 'writable/half/diff'), { recursive: true });
    mkdirSync(join(root, 'trash/old/deep'), { recursive: true });
    writeFileSync(join(root, 'index/x.json.tmp-0123456789ab'), '{"ver');
    rmSync(join(root, 'index', `${lonely.slice(7)}.json`));
    const again = await h.open('crash');
    const { removed } = await again.load();
    assert.equal(removed.length, 5, removed.join(', '));
    assert.ok(again.find(base) && again.find(top));
    assert.equal(again.find(lonely), undefined);
    await again.close();
    for (const name of ['staging', 'trash', 'writable']) assert.deepEqual(readdirSync(join(root, name)), [], name);
    assert.equal(readdirSync(join(root, 'layers')).length, 2);

    rmSync(join(root, 'index', `${base.slice(7)}.json`));
    const third = await h.open('crash');
    assert.equal((await third.load()).removed.length, 3, 'a layer without its parent, and both directories');
    await third.close();
  },

  async 'after a power cut a layer that was torn is gone, one that is whole stays'(h) {
    const root = join(h.temp, 'power');
    const store = await h.open('power');
    await store.load();
    const whole = await h.addLayers(store, [[{ path: 'a', content: 'whole' }]]);
    const torn = await h.addLayers(store, [[{ path: 'b', content: 'torn' }]]);
    const unsynced = join(root, 'unsynced');
    const marks = readdirSync(unsynced);
    assert.equal(marks.length, 2);
    h.makeWritable(store.openTar(torn).diffDir);
    writeFileSync(join(store.openTar(torn).diffDir, 'b'), '');
    // A store that stays open syncs some seconds later, and removes its marks then.
    await store.close();
    for (const name of marks) writeFileSync(join(unsynced, name), 'another boot');
    const again = await h.open('power');
    const { removed } = await again.load();
    assert.equal(removed.length, 2, removed.join());
    assert.ok(again.find(whole));
    assert.equal(again.find(torn), undefined);
    await again.close();
    const durability = new Durability(unsynced, h.log);
    assert.equal((await durability.load()).length, 1, 'the mark of what is gone went with it');
    await durability.sync();
    assert.deepEqual(readdirSync(unsynced), []);
  },

  async 'a layer stays while its tar is being read, and goes then'(h) {
    const store = await h.newStore('pinned');
    const tar = tarOf([{ path: 'a', content: 'a' }]);
    const { chainId } = await h.addTar(store, undefined, tar);
    store.retain(chainId);
    const { close, ...source } = store.openTar(chainId);
    assert.deepEqual(await store.release(chainId), []);
    assert.deepEqual(Buffer.concat([...assembleTar(source)]), tar);
    close();
    await waitFor('the layer to go', () => store.find(chainId) === undefined && !existsSync(source.diffDir));
  },

  async 'a container lives through mounts, a restart of the daemon and its removal'(h) {
    const store = await h.newStore('counted');
    const top = await h.addLayers(store, [[{ path: 'a', content: 'a' }]]);
    await store.createWritable('c', top);
    await assert.rejects(store.createWritable('c', top), (error) => isEngineError(error, 'conflict'));
    const root = await store.mount('c');
    assert.equal(root, store.rootOf('c'));
    assert.equal(await store.mount('c'), root);
    writeFileSync(join(root, 'b'), 'b');
    await store.unmount('c');
    assert.deepEqual(withoutInit(readdirSync(root)).sort(), ['a', 'b'], 'one of two mounts is left');
    const again = await h.open('counted');
    assert.deepEqual((await again.load()).removed, []);
    assert.deepEqual(again.writableIds(), ['c']);
    assert.equal(await again.mount('c'), root);
    assert.equal(readFileSync(join(root, 'b'), 'utf8'), 'b');
    assert.deepEqual([...(await again.changes('c'))], [{ path: '/b', kind: 1 }]);
    // It is in use, and goes all the same: the caller has seen to it that nothing runs there.
    await again.removeWritable('c');
    await again.removeWritable('c');
    assert.deepEqual(again.writableIds(), []);
    assert.equal(existsSync(root), false);
    await assert.rejects(again.mount('c'), (error) => isEngineError(error, 'not-found'));
    await again.close();
  },

  async 'options that the driver does not have are refused, and nothing is left'(h) {
    const store = await h.newStore('options');
    const top = await h.addLayers(store, [[{ path: 'a', content: 'a' }]]);
    await assert.rejects(store.createWritable('c', top, { strange: '1' }), {
      kind: 'invalid',
      message: 'Unknown option strange',
    });
    assert.deepEqual(store.writableIds(), []);
    for (const name of ['staging', 'writable']) assert.deepEqual(readdirSync(join(h.temp, 'options', name)), [], name);
  },

  async 'equal tars make equal layers, whatever they lie on'(h) {
    const store = await h.newStore('copies');
    const tar = tarOf([{ path: 'a', content: 'a' }, { path: '.wh.b' }]);
    const base = await h.addLayers(store, [[{ path: 'b', content: 'b' }]]);
    const { chainId, diffId } = await h.addTar(store, undefined, tar);
    const copy = await store.copyLayer(chainId, base);
    assert.deepEqual([copy.parent, copy.diffId], [base, diffId]);
    assert.deepEqual(await buffer(store.tarStream(copy.chainId)), tar);
    await h.mounted(store, 'c', copy.chainId, (root) => assert.deepEqual(withoutInit(readdirSync(root)), ['a']));
  },
};
