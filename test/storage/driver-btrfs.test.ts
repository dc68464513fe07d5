/** The contract of storage drivers, kept by the driver btrfs on a file system of its own. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { btrfs } from '../../src/storage/drivers/btrfs/btrfs-driver.js';
import { makeTree, removeDirectories, sealLayer } from '../../src/storage/drivers/btrfs/tasks.js';
import { storageDriver } from '../../src/storage/drivers/index.js';
import { setReadOnly } from '../../src/sys/btrfs/subvolumes.js';
import { BtrfsDisk, noBtrfs } from '../support/btrfs-disk.js';
import { testDriver } from '../support/driver-contract/contract.js';

const reason = noBtrfs();
if (reason !== false) test('storage driver btrfs', { skip: reason });
else {
  const disk = new BtrfsDisk();
  const directory = join(disk.path, 'stores');
  mkdirSync(directory);
  // A container is one snapshot here, whatever is below it, and each layer is a snapshot of the one below.
  testDriver(storageDriver('btrfs'), {
    directory,
    makeWritable: (path) => setReadOnly(path, false),
    sizes: { depth: 20 },
  });
  after(() => disk.remove());

  test('what a layer has alone counts, whether it came to the disk before its snapshot was made or not', () => {
    const size = 3 << 20;
    const layers = ['base', 'early', 'late'].map((name) => join(disk.path, 'counted', name));
    const [base = '', ...others] = layers;
    for (const path of layers) mkdirSync(path, { recursive: true });
    const seal = (layer: string, isEarly: boolean): void => {
      const difference = join(layer, 'diff');
      makeTree({ at: difference });
      writeFileSync(join(difference, layer === base ? 'below' : 'file'), randomBytes(size));
      if (isEarly) execFileSync('sync', ['-f', difference]);
      const parent = layer === base ? undefined : join(base, 'tree');
      sealLayer({ difference, parent, tree: join(layer, 'tree') });
    };
    seal(base, true);
    for (const [at, layer] of others.entries()) seal(layer, at === 0);
    btrfs.counting?.prepare(disk.path);
    assert.deepEqual(
      layers.map((layer) => btrfs.counting?.own(layer)),
      [size, size, size],
    );
    removeDirectories({ paths: layers, names: ['tree', 'diff'] });
    rmSync(join(disk.path, 'counted'), { recursive: true });
  });
}
