/**
 * The driver zfs around the programs of ZFS, with directories instead of them: what the contract of storage
 * drivers says of crashes, what is refused, and what is left alone. test/vm/zfs.test.ts has the real ones.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readlinkSync, renameSync, rmSync, symlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, describe, test } from 'node:test';
import { openLayerStore } from '../../src/storage/layers/open-layer-store.js';
import { OWN_PROPERTY } from '../../src/storage/drivers/zfs/places.js';
import { hostZfs } from '../../src/storage/drivers/zfs/host.js';
import { PoolStatus } from '../../src/storage/drivers/zfs/pool.js';
import { zfsRow } from '../../src/storage/drivers/zfs/zfs-driver.js';
import { testDriver } from '../support/driver-contract/contract.js';
import { KILL_TESTS } from '../support/driver-contract/kills.js';
import { LIFE_TESTS } from '../support/driver-contract/life.js';
import { DriverHarness } from '../support/driver-contract/harness.js';
import { FakeZfs } from '../support/fake-zfs.js';
import { remountWritable } from '../support/remount.js';
import { waitFor } from '../support/wait.js';

const newDirectory = (): string => mkdtempSync(join(tmpdir(), 'fake-zfs-'));
const pool = newDirectory();
process.env['FAKE_ZFS'] = pool;
// The other tests are about files in whole trees, which other drivers have too.
testDriver(
  zfsRow(new FakeZfs(pool)),
  { directory: mkdtempSync(join(tmpdir(), 'storage-')), makeWritable: remountWritable },
  { ...LIFE_TESTS, ...KILL_TESTS },
);

describe('the driver zfs', () => {
  const host = new FakeZfs(newDirectory());
  const warnings: string[] = [];
  const harness = new DriverHarness(zfsRow(host));
  const open = (name: string, ...storageOpts: string[]) =>
    openLayerStore({
      driver: harness.driver,
      root: join(harness.temp, name),
      workers: harness.workers,
      log: { ...harness.log, warn: (_facts: object, text: string) => void warnings.push(text) },
      storageOpts,
    });
  const parentOf = (name: string): string => readlinkSync(join(harness.temp, name, 'dataset'));
  after(async () => {
    await harness.close();
    for (const path of [pool, host.directory]) rmSync(path, { recursive: true });
  });

  test('refuses a pool and datasets that it cannot write to, and names the remedy', async () => {
    const refuses = async (message: RegExp, ...options: string[]): Promise<void> => {
      await assert.rejects(open('refused', ...options), { kind: 'unavailable', message });
      assert.deepEqual(host.names(), ['tank']);
    };
    for (const [property, value, message] of [
      ['health', 'SUSPENDED', /the pool tank is SUSPENDED: see zpool status -v tank/],
      ['readonly', 'on', /the pool tank is imported read-only: zpool export tank/],
    ] as const) {
      const before = host.pool[property] ?? '';
      host.pool[property] = value;
      await refuses(message);
      host.pool[property] = before;
    }
    for (const [properties, message] of [
      [{ readonly: 'on' }, /the dataset tank is read-only: zfs set readonly=off tank/],
      [{ keystatus: 'unavailable' }, /the key of tank is not loaded: zfs load-key tank/],
      [{ type: 'volume' }, /tank is a volume, not a file system/],
    ] as const) {
      host.set('tank', properties);
      await refuses(message);
      host.set('tank', {});
    }
    await refuses(/there is no dataset tank\/none: make it \(zfs create tank\/none\)/, 'zfs.fsname=tank/none');
    for (const name of ['-o', 'tank@snapshot', '../x', 'tank/', 'tank//x', 'tank/-r', 'x'.repeat(300), ''])
      await assert.rejects(open('refused', `zfs.fsname=${name}`), { kind: 'invalid', message: /no name of a dataset/ });
    for (const [wrong, message] of [
      [
        { fileSystemOf: (path: string) => hostZfs.fileSystemOf(path) },
        /prerequisites for driver not satisfied \(wrong filesystem\?\): .* not on ZFS; name a dataset/,
      ],
      [
        { trouble: () => hostZfs.trouble() },
        /the program zfs is not installed: install zfsutils-linux|this kernel has no ZFS/,
      ],
    ] as const) {
      const driver = zfsRow(Object.assign(Object.create(host) as FakeZfs, wrong));
      const root = join(harness.temp, 'refused-too');
      const { workers, log } = harness;
      await assert.rejects(openLayerStore({ driver, root, workers, log }), {
        kind: 'unavailable',
        message,
      });
    }
  });

  test('warns of a degraded and of a full pool', async () => {
    host.pool['health'] = 'DEGRADED';
    host.set('tank', { available: '1000' });
    const store = await open('warned');
    await store.load();
    assert.match(
      warnings.splice(0).join(),
      /the pool tank is DEGRADED: see zpool status.*tank has 1000 bytes left: remove/,
    );
    host.pool['health'] = 'ONLINE';
    host.set('tank', {});
    const rows = new Map(await store.driverStatus());
    assert.equal(rows.get('Zpool Health'), 'ONLINE');
    assert.equal(rows.get('Parent Dataset'), parentOf('warned'));
    await store.close();
  });

  test('tells of a pool that does not answer, and asks it nothing more until it does', async () => {
    let answer = (_text: string): void => assert.fail('nobody has asked');
    let asked = 0;
    const zpool = (): Promise<string> => {
      asked += 1;
      return new Promise((resolve) => (answer = resolve));
    };
    const status = new PoolStatus(Object.assign(Object.create(host) as FakeZfs, { zpool }), 'tank', 10);
    const silent = [
      ['Zpool', 'tank'],
      ['Zpool Health', 'not available: the pool did not answer within 0.01 seconds'],
    ];
    assert.deepEqual(await Promise.all([status.rows(), status.rows()]), [silent, silent]);
    assert.deepEqual([await status.rows(), asked], [silent, 1]);
    answer('health\tONLINE\n');
    await waitFor('another question', async () => (await status.rows()) && asked > 1);
  });

  test('follows its dataset to another parent, and says where a renamed one is', async () => {
    const store = await open('moved');
    await store.load();
    const top = await harness.addLayers(store, [[{ path: 'a', content: 'a' }]]);
    await store.close();
    const first = parentOf('moved');
    await host.zfs('create', 'tank/other');
    host.renameTree(first, first.replace('tank/', 'tank/other/'));
    await assert.rejects(open('moved'), (error: Error) => error.message.endsWith('zfs.fsname=tank/other'));
    const again = await open('moved', 'zfs.fsname=tank/other');
    assert.match((await again.load()).removed.join(), /name of the dataset of layers: it was tank\/engined-/);
    assert.ok(again.find(top));
    await again.close();
    host.renameTree(parentOf('moved'), 'tank/mine');
    await assert.rejects(open('moved'), /is tank\/mine now: rename it back \(zfs rename tank\/mine tank\/engined-/);
    host.renameTree('tank/mine', first);
    const third = await open('moved');
    assert.equal((await third.load()).removed.length, 1);
    await third.close();
    rmSync(join(harness.temp, 'moved/dataset'));
    symlinkSync('tank/engined-gone', join(harness.temp, 'moved/dataset'));
    await assert.rejects(
      open('moved'),
      /tank\/engined-gone, which has all layers and containers, is gone: import its pool/,
    );
  });

  test('refuses a copy of a data root, and takes one that was moved or restored', async () => {
    const first = await open('original');
    await first.load();
    const top = await harness.addLayers(first, [[{ path: 'a', content: 'a' }]]);
    await first.close();
    const at = (name: string): string => join(harness.temp, name);
    execFileSync('cp', ['-a', at('original'), at('copy')]);
    await assert.rejects(
      open('copy'),
      /belongs to the data root of \d+ .*\/original, of which this one is a copy: if that/,
    );
    renameSync(at('original'), at('renamed'));
    const renamed = await open('renamed');
    await renamed.load();
    assert.ok(renamed.find(top));
    await renamed.close();
    rmSync(at('renamed'), { recursive: true });
    renameSync(at('copy'), at('renamed'));
    const restored = await open('renamed');
    assert.deepEqual((await restored.load()).removed, []);
    assert.ok(restored.find(top));
    await restored.close();
  });

  test('destroys what nothing names, and nothing that it did not make', async () => {
    const store = await open('orphans');
    await store.load();
    const parent = parentOf('orphans');
    const store_ = parent.slice(parent.indexOf('/') + 1);
    const mark = ['-o', `${OWN_PROPERTY}=${store_}`];
    await host.zfs('create', ...mark, `${parent}/lost`);
    await host.zfs('snapshot', `${parent}/lost@layer`);
    await host.zfs('clone', ...mark, `${parent}/lost@layer`, `${parent}/upper`);
    await host.zfs('snapshot', `${parent}/upper@layer`);
    await host.zfs('clone', ...mark, `${parent}/upper@layer`, `${parent}/top`);
    await host.zfs('create', `${parent}/foreign`);
    await host.zfs('create', '-o', `${OWN_PROPERTY}=engined-other`, `${parent}/of-another`);
    const again = await open('orphans');
    const { removed } = await again.load();
    assert.deepEqual(
      removed.toSorted(),
      ['lost', 'top', 'upper'].map((name) => `dataset ${parent}/${name}`),
    );
    const rest = host.names().filter((name) => name.startsWith(`${parent}/`));
    assert.deepEqual(rest, [`${parent}/foreign`, `${parent}/of-another`]);
    assert.equal(
      host.commands.some((line) => /^zfs destroy .*-[rR]/.test(line)),
      false,
    );
    await again.close();
  });

  test('keeps what snapshots and clones of others stand on until these are gone', async () => {
    const store = await open('held');
    await store.load();
    const parent = parentOf('held');
    const top = await harness.addLayers(store, [[{ path: 'a', content: 'a' }]]);
    const other = await harness.addLayers(store, [[{ path: 'b', content: 'b' }]]);
    const { Dataset: layer = '' } = store.layerData(other) ?? {};
    await store.createWritable('c', top);
    const { Dataset: container = '' } = store.graphData('c') ?? {};
    await host.zfs('snapshot', `${container}@backup`);
    await host.zfs('clone', `${layer}@layer`, 'tank/of-somebody');
    await store.removeWritable('c');
    await store.release(other);
    await store.release(top);
    await store.close();
    const said = warnings.splice(0).join();
    assert.equal(said, 'trash not emptied');
    assert.ok(host.names().includes(`${container}@backup`) && host.names().includes('tank/of-somebody'));
    assert.equal(readdirSync(join(harness.temp, 'held/trash')).length, 3);
    await host.zfs('destroy', `${container}@backup`);
    assert.ok(host.names().includes(`${layer}@layer`));
    await host.zfs('destroy', 'tank/of-somebody');
    assert.ok(!host.names().includes(`${layer}@layer`), 'its end was deferred');
    const again = await open('held');
    await again.load();
    await again.close();
    assert.deepEqual(
      host.names().filter((name) => name.startsWith(`${parent}/`)),
      [],
    );
    assert.deepEqual(readdirSync(join(harness.temp, 'held/trash')), []);
  });

  test('says which dataset of a layer or container is gone', async () => {
    const store = await open('gone');
    await store.load();
    const top = await harness.addLayers(store, [[{ path: 'a', content: 'a' }]]);
    await store.createWritable('c', top);
    const { Dataset: container = '' } = store.graphData('c') ?? {};
    host.renameTree(container, 'tank/taken');
    await assert.rejects(store.mount('c'), {
      kind: 'invalid',
      message: new RegExp(`the dataset ${container} of c is gone`),
    });
    await store.close();
    const again = await open('gone');
    await again.load();
    assert.match(
      warnings.splice(0).join(),
      new RegExp(`the dataset ${container} of .*/writable/c is gone: rename it back`),
    );
    host.renameTree('tank/taken', container);
    await again.mount('c');
    await again.removeWritable('c');
    await again.close();
  });

  test('refuses sizes that cannot be, and makes others the quota of the container', async () => {
    const store = await open('sizes');
    await store.load();
    const top = await harness.addLayers(store, [[{ path: 'a', content: 'a' }]]);
    for (const [size, message] of [
      ['0', /zfs: invalid storage size: 0B/],
      ['zz', /invalid size: 'zz'/],
      ['1P', /size 1P is larger than what the pool has \(1000000000 bytes\)/],
    ] as const)
      await assert.rejects(store.createWritable('c', top, { size }), { kind: 'invalid', message });
    await store.createWritable('c', top, { size: '20M' });
    assert.ok(host.commands.some((line) => /^zfs clone .*-o quota=20971520 /.test(line)));
    await store.removeWritable('c');
    await store.close();
  });
});
