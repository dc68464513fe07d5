/** The contract of storage drivers, kept by the driver btrfs on a file system of its own. */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
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
  testDriver(storageDriver('btrfs'), { directory, makeWritable: (path) => setReadOnly(path, false) });
  after(() => disk.remove());
}
