/**
 * The driver zfs on OpenZFS: the contract of storage drivers, what becomes of a pool, and a daemon. Only the machine of
 * `npm run test:vm -- zfs` has ZFS.
 */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdirSync, readdirSync, readlinkSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { storageDriver } from '../../src/storage/drivers/index.js';
import { openLayerStore } from '../../src/storage/layers/open-layer-store.js';
import { testDriver } from '../support/driver-contract/contract.js';
import { DriverHarness } from '../support/driver-contract/harness.js';
import { checkLimitedWrites } from '../support/limited-writes.js';
import { docker, importBox, outcomeOf, output, property, systemctl, waitLong } from '../support/machine.js';
import { remountWritable } from '../support/remount.js';
import { hasZfs, run } from '../support/zfs-pool.js';

const CONFIG = '/etc/engine/daemon.json';

/** Makes a pool in files. */
function makePool(name: string, size: string, ...parts: readonly string[]): void {
  const files = parts.map((part) => `/var/tmp/${name}-${part}`);
  for (const file of files) run('truncate', '-s', size, file);
  run('zpool', 'create', '-m', `/${name}`, name, ...(files.length > 1 ? ['mirror'] : []), ...files);
}

const isThere = hasZfs();
const skip = isThere ? false : 'no ZFS: npm run test:vm -- zfs';

if (isThere) makePool('tank', '2G', 'one');

describe('a daemon', { skip }, () => {
  const parent = (): string => readlinkSync('/tank/data/zfs/dataset');
  const datasets = (): string[] => run('zfs', 'list', '-H', '-d', '1', '-o', 'name', parent()).split('\n').slice(1);
  const fsck = async (): Promise<unknown> => {
    const args = ['-s', '--unix-socket', '/run/engine.sock', '-X', 'POST', 'http://x/engine/fsck?dryRun=1'];
    return (JSON.parse(await output('curl', ...args)) as { findings: unknown }).findings;
  };
  const shell = (name: string, script: string, ...options: string[]): Promise<string> =>
    docker('run', '--name', name, '--network', 'none', ...options, 'box', 'sh', '-c', script);

  before(async () => {
    mkdirSync('/etc/engine', { recursive: true });
    writeFileSync(CONFIG, JSON.stringify({ 'data-root': '/tank/data', 'live-restore': true }));
    await outcomeOf('systemctl', 'reset-failed');
    await systemctl('restart', 'engined.socket');
    await systemctl('restart', 'engined.service');
    await importBox();
  });
  after(async () => {
    await systemctl('stop', 'engined.socket', 'engined.service');
    writeFileSync(CONFIG, '{}');
  });

  test('takes the driver by itself, and tells of the pool', async () => {
    const { Driver, DriverStatus } = JSON.parse(await docker('info', '--format', '{{json .}}')) as {
      readonly Driver: string;
      readonly DriverStatus: [string, string][];
    };
    assert.equal(Driver, 'zfs');
    const rows = new Map(DriverStatus);
    assert.deepEqual(
      [rows.get('Zpool'), rows.get('Zpool Health'), rows.get('Parent Dataset')],
      ['tank', 'ONLINE', parent()],
    );
    assert.match(rows.get('ZFS Version') ?? '', /^\d+\.\d+\.\d+/);
    assert.ok(Number(rows.get('Space Available')) > 0);
  });

  test('runs containers, and diff, commit, cp, export and save work', async () => {
    await shell('first', 'echo new >/etc/new; rm /bin/vi');
    assert.deepEqual((await docker('diff', 'first')).split('\n').sort(), [
      'A /etc/new',
      'C /bin',
      'C /etc',
      'D /bin/vi',
    ]);
    await docker('commit', 'first', 'committed');
    assert.equal(await docker('run', '--rm', '--network', 'none', 'committed', 'cat', '/etc/new'), 'new');
    await docker('cp', 'first:/etc/new', '/tmp/new');
    assert.equal(await output('cat', '/tmp/new'), 'new');
    await docker('export', '-o', '/tmp/export.tar', 'first');
    assert.equal(await output('tar', '-xOf', '/tmp/export.tar', 'etc/new'), 'new');
    await docker('save', '-o', '/tmp/save.tar', 'committed');
    await docker('rmi', 'committed');
    await docker('load', '-i', '/tmp/save.tar');
    assert.equal(await docker('run', '--rm', '--network', 'none', 'committed', 'cat', '/etc/new'), 'new');
    await docker('rm', 'first');
    assert.deepEqual(await fsck(), []);
  });

  test('ends what a container writes at its size', async () => {
    await checkLimitedWrites(/Disk quota exceeded|quota exceeded/i);
  });

  test('counts what the file system counts', async () => {
    await shell('large', 'head -c 30000000 /dev/urandom >/large');
    const usage = async (): Promise<[number, number]> => {
      const json = await output('curl', '-s', '--unix-socket', '/run/engine.sock', 'http://x/system/df');
      const { DataRoot } = JSON.parse(json) as { readonly DataRoot: { readonly Size: number } };
      return [DataRoot.Size, Number(run('zfs', 'get', '-Hp', '-o', 'value', 'used', 'tank'))];
    };
    await waitLong('equal numbers', async () => {
      const [told, is] = await usage();
      return Math.abs(told - is) < is * 0.05;
    });
    await docker('rm', 'large');
  });

  test('that is killed goes on with its containers, and keeps the snapshots of others', async () => {
    await shell('stays', 'sleep 100000', '-d');
    await shell('kept', 'true');
    const kept = await docker('inspect', '-f', '{{.GraphDriver.Data.Dataset}}', 'kept');
    run('zfs', 'snapshot', `${kept}@backup`);
    const pid = await property('engined.service', 'MainPID');
    await output('kill', '-9', pid);
    await waitLong('another daemon', async () => !['0', pid].includes(await property('engined.service', 'MainPID')));
    assert.equal(await docker('exec', 'stays', 'echo', 'here'), 'here');
    await docker('rm', 'kept');
    await waitLong('a warning', async () => (await output('journalctl', '-u', 'engined')).includes(`${kept}@backup`));
    assert.ok(datasets().includes(kept));
    run('zfs', 'destroy', `${kept}@backup`);
    await docker('rm', '-f', 'stays');
    await waitLong('the end of it', async () => !datasets().includes(kept));
    assert.deepEqual(await fsck(), []);
  });

  test('unmounts its layers when it ends', async () => {
    await systemctl('stop', 'engined.socket', 'engined.service');
    assert.equal(run('cat', '/proc/mounts').includes('/tank/data/'), false);
    assert.equal(datasets().length, readdirSync('/tank/data/zfs/layers').length);
  });
});

// The stores are on another file system, and their datasets in a pool of their own.
describe('a pool', { skip }, () => {
  const warnings: string[] = [];
  const harness = new DriverHarness(storageDriver('zfs'));
  const open = (...storageOpts: string[]) =>
    openLayerStore({
      driver: harness.driver,
      root: join(harness.temp, 'store'),
      workers: harness.workers,
      log: { ...harness.log, warn: (_facts: object, text: string) => void warnings.push(text) },
      storageOpts,
    });
  const ours = (): string => readlinkSync(join(harness.temp, 'store/dataset'));

  before(() => {
    makePool('second', '192M', 'one', 'two');
    run('zfs', 'create', 'second/of mine');
  });
  after(async () => {
    await harness.close();
    run('zpool', 'destroy', 'second');
  });

  test('that is degraded is warned of, and one that is exported or read-only is refused', async () => {
    await assert.rejects(open(), /wrong filesystem/);
    const option = 'zfs.fsname=second/of mine';
    const store = await open(option);
    await store.load();
    const top = await harness.addLayers(store, [[{ path: 'a', content: 'a' }]]);
    await store.close();
    assert.deepEqual(warnings.splice(0), []);
    run('zpool', 'offline', 'second', '/var/tmp/second-two');
    const again = await open(option);
    await again.load();
    assert.match(warnings.splice(0).join(), /the pool second is DEGRADED: see zpool status/);
    assert.ok(again.find(top));
    assert.equal(new Map(await again.driverStatus()).get('Zpool Health'), 'DEGRADED');
    await again.close();
    run('zpool', 'online', 'second', '/var/tmp/second-two');
    run('zpool', 'export', 'second');
    await assert.rejects(open(option), /the pool second is not imported: zpool import second/);
    run('zpool', 'import', '-d', '/var/tmp', '-o', 'readonly=on', 'second');
    await assert.rejects(open(option), /the pool second is imported read-only: zpool export second/);
    run('zpool', 'export', 'second');
    run('zpool', 'import', '-d', '/var/tmp', 'second');
  });

  test('whose dataset somebody renamed or moved', async () => {
    const first = ours();
    run('zfs', 'rename', first, 'second/elsewhere');
    await assert.rejects(open('zfs.fsname=second/of mine'), /is second\/elsewhere now: rename it back/);
    run('zfs', 'rename', 'second/elsewhere', `second/${basename(first)}`);
    await assert.rejects(open('zfs.fsname=second/of mine'), /start the daemon with --storage-opt zfs.fsname=second$/);
    const store = await open('zfs.fsname=second');
    assert.equal((await store.load()).removed.length, 1);
    await store.collect();
    await store.close();
  });

  test('that is full refuses layers and lets them be removed', async () => {
    const store = await open('zfs.fsname=second');
    await store.load();
    const top = await harness.addLayers(store, [[{ path: 'a', content: 'a' }]]);
    await store.createWritable('c', top);
    const root = await store.mount('c');
    const random = randomBytes(1 << 20);
    assert.throws(
      () => {
        for (let i = 0; ; i++) writeFileSync(join(root, `file${i}`), random);
      },
      { code: 'ENOSPC' },
    );
    run('zpool', 'sync', 'second');
    await store.unmount('c');
    await store.removeWritable('c');
    await store.release(top);
    await store.close();
    assert.deepEqual(warnings.splice(0).join(), '');
    const next = await open('zfs.fsname=second');
    await next.load();
    await next.close();
    assert.equal(run('zfs', 'list', '-H', '-r', '-o', 'name', ours()), ours());
  });
});

// This takes longest.
if (isThere) {
  mkdirSync('/tank/stores');
  testDriver(storageDriver('zfs'), { directory: '/tank/stores', makeWritable: remountWritable });
} else test('storage driver zfs', { skip });
