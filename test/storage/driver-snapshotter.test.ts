/**
 * The driver of the feature `supervisor-snapshotter` on a containerd of the tests' own: the contract of storage drivers
 * with snapshots that are differences and with whole trees, and what a killed process leaves in the supervisor.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readlinkSync, renameSync, rmSync, unlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { snapshotterRow } from '../../src/storage/drivers/index.js';
import { detachMount, mountFileSystem } from '../../src/sys/mount/mount.js';
import { ALL_TESTS, testDriver } from '../support/driver-contract/contract.js';
import { FILE_TESTS } from '../support/driver-contract/files.js';
import { DriverHarness, type DriverTests } from '../support/driver-contract/harness.js';
import { SupervisorHarness } from '../support/supervisor-harness.js';

const harness = new SupervisorHarness();
const supervisor = harness.supervisor({ snapshotter: 'overlayfs' });
process.env['SNAPSHOTS_OF'] = harness.socket;
const snapshots = supervisor.snapshots('overlayfs');

const KILLS = 'a process that is killed leaves whole layers, and the next start removes the rest';

before(() => supervisor.start());
after(async () => {
  await supervisor.stop();
  await harness.cleanUp();
});

const { [KILLS]: killed = async () => assert.fail('the contract has no kills'), ...others } = ALL_TESTS;

test('a process that is killed leaves whole layers, and no snapshot that nothing names', async () => {
  const h = new DriverHarness(snapshotterRow(snapshots));
  await killed(h);
  // The supervisor may still have been doing something for the last process: that goes with the next start.
  await (await h.newStore('killed')).close();
  const root = join(h.temp, 'killed');
  const base = readlinkSync(join(root, 'base/snapshot'));
  assert.deepEqual(await snapshots.held(readlinkSync(join(root, 'lease'))), [base]);
  assert.deepEqual([...(await snapshots.names())], [base]);
  await h.close();
});

const COPY_TESTS: DriverTests = {
  async 'a copy of a data root is refused while one supervisor serves both, and a moved one is not'(h) {
    const [original, copy, moved] = ['original', 'copy', 'moved'].map((name) => join(h.temp, name));
    assert.ok(original && copy && moved);
    const store = await h.open('original');
    await store.load();
    const top = await h.addLayers(store, [[{ path: 'a', content: 'a' }]]);
    await store.createWritable('of-both', top);
    await store.close();
    const lease = readlinkSync(join(original, 'lease'));
    const before = await snapshots.held(lease);
    execFileSync('cp', ['-a', original, copy]);
    const refused = async (name: string): Promise<void> => {
      const again = await h.open(name);
      await assert.rejects(again.load(), { kind: 'unavailable', code: 'DATA_ROOT_COPIED' });
      await again.close();
    };
    await refused('copy');
    // So it is with a snapshot of a file system, where both directories have the same inode.
    unlinkSync(join(copy, 'identity'));
    await refused('copy');
    assert.deepEqual(await snapshots.held(lease), before);

    renameSync(original, moved);
    const again = await h.open('moved');
    assert.deepEqual((await again.load()).removed, []);
    await again.close();
    rmSync(copy, { recursive: true });
    execFileSync('cp', ['-a', moved, copy]);
    rmSync(moved, { recursive: true });
    await refused('copy');
    unlinkSync(join(copy, 'identity'));
    const confirmed = await h.newStore('copy');
    await h.mounted(confirmed, 'of-both', top, (root) => assert.ok(readdirSync(root).includes('a')));
  },
};

// Each layer is several calls of the supervisor, so chains of random ones take long here.
testDriver(snapshotterRow(snapshots), { sizes: { chains: 2 } }, { ...others, ...COPY_TESTS });

test('the supervisor may have its files on another file system', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'storage-'));
  await mountFileSystem('tmpfs', directory, 'tmpfs', '');
  const h = new DriverHarness(snapshotterRow(snapshots), join(directory, 'stores'));
  try {
    for (const name of [
      'whiteouts, opaque directories, implicit directories and hard links across layers',
      'the changes of a container, and the layer that a commit makes of them',
      'an empty root can be mounted, written and committed',
    ])
      await FILE_TESTS[name]?.(h);
  } finally {
    await h.close();
    await detachMount(directory);
    rmSync(directory, { recursive: true });
  }
});

// This one copies whole trees, also those below a layer.
testDriver(snapshotterRow(supervisor.snapshots('native')), { sizes: { depth: 20, chains: 1 } }, others);
