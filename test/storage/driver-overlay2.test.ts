/** The contract of storage drivers, kept by the driver overlay2. */
import assert from 'node:assert/strict';
import { lstatSync, mkdirSync, readdirSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { storageDriver } from '../../src/storage/drivers/index.js';
import { mountFileSystem, mountPointsBelow } from '../../src/sys/mount/mount.js';
import { ALL_TESTS, testDriver } from '../support/driver-contract/contract.js';
import type { DriverTests } from '../support/driver-contract/harness.js';

const OWN_TESTS: DriverTests = {
  async 'the files of a sealed layer are those that were written, not copies'(h) {
    const store = await h.newStore('moved');
    await store.createBrief('step', undefined, { isBare: true });
    const file = join(await store.mount('step'), 'file');
    writeFileSync(file, 'content');
    utimesSync(file, 1_600_000_000, 1_600_000_000);
    const { ino } = lstatSync(file);
    const { chainId } = await store.sealWritable('step');
    const { diffDir, close } = store.openTar(chainId);
    assert.equal(lstatSync(join(diffDir, 'file')).ino, ino);
    close();
  },

  async 'a mount that a killed daemon was trying is gone after the next start, and so are its files'(h) {
    const before = await h.open('tried');
    await before.load();
    await before.close();
    const root = join(h.temp, 'tried');
    for (const place of ['staging', 'trash']) {
      const at = (name: string): string => join(root, place, 'tried', name);
      for (const name of ['lower', 'upper', 'work', 'merged']) mkdirSync(at(name), { recursive: true });
      const paths = `lowerdir=${at('lower')},upperdir=${at('upper')},workdir=${at('work')}`;
      await mountFileSystem('overlay', at('merged'), 'overlay', paths);
    }
    const store = await h.open('tried');
    const { removed } = await store.load();
    assert.deepEqual(removed, ['unfinished layer tried']);
    await store.close();
    assert.deepEqual(await mountPointsBelow(root), []);
    assert.deepEqual(readdirSync(join(root, 'trash')), []);
  },
};

testDriver(storageDriver('overlay2'), {}, { ...ALL_TESTS, ...OWN_TESTS });
