/**
 * A process that adds, commits, seals and removes layers until it is killed: `busy-store.js DRIVER DIRECTORY`. The
 * variable FAKE_ZFS names the directory of the pool that the driver zfs has instead of a real one, SNAPSHOTS_OF the
 * socket of a containerd, one of whose snapshotters DRIVER is then.
 */
import { basename, dirname, join } from 'node:path';
import { writeFileSync } from 'node:fs';
import type { DriverRow } from '../../../src/storage/drivers/driver.js';
import { snapshotterRow, storageDriver } from '../../../src/storage/drivers/index.js';
import { zfsRow } from '../../../src/storage/drivers/zfs/zfs-driver.js';
import { GrpcConnection } from '../../../src/supervisor/grpc-connection.js';
import { ContainerdSnapshots } from '../../../src/supervisor/snapshots.js';
import { directoryDriver } from '../directory-driver.js';
import { FakeZfs } from '../fake-zfs.js';
import { tarOf } from '../image-builder.js';
import { DriverHarness } from './harness.js';

const [, , driverName = '', root = ''] = process.argv;
const harness = new DriverHarness(driverOf(driverName), dirname(root));
const store = await harness.newStore(basename(root));
process.send?.('ready');
for (let round = 0; ; round++) {
  const content = `${process.pid} ${round}`;
  const base = await harness.addTar(
    store,
    undefined,
    tarOf([
      { path: 'a', content },
      { path: 'b', content },
    ]),
  );
  const top = await harness.addTar(store, base.chainId, tarOf([{ path: 'c', content }, { path: '.wh.b' }]));
  const id = `${process.pid}-${round}`;
  // A container has a reference on its image's layers.
  store.retain(top.chainId);
  for (const made of [id, `${id}-again`]) await store.createWritable(made, top.chainId);
  await store.removeWritable(`${id}-again`);
  writeFileSync(join(await store.mount(id), 'written'), content);
  const commit = await store.commitWritable(id);
  store.retain(commit.chainId);
  await store.unmount(id);
  const step = `${id}-step`;
  await store.createBrief(step, commit.chainId, { isBare: true });
  writeFileSync(join(await store.mount(step), 'sealed'), content);
  store.retain((await store.sealWritable(step)).chainId);
  if (round % 3 > 0) {
    await store.removeWritable(id);
    await store.release(top.chainId);
  }
  if (round % 2 > 0) await store.release(commit.chainId);
}

function driverOf(name: string): DriverRow {
  const { FAKE_ZFS: pool, SNAPSHOTS_OF: socket } = process.env;
  if (socket !== undefined) return snapshotterRow(new ContainerdSnapshots(new GrpcConnection(socket, 'engine'), name));
  if (pool !== undefined) return zfsRow(new FakeZfs(pool));
  return name === directoryDriver.name ? directoryDriver : storageDriver(name);
}
