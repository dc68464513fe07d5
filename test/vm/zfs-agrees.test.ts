/**
 * The same images with the driver zfs and others: `IMAGES_COUNT=30 npm run test:vm -- --native zfs-agrees` is the long
 * run.
 */
import { test } from 'node:test';
import { systemctl } from '../support/machine.js';
import { hasZfs } from '../support/zfs-pool.js';

if (hasZfs()) {
  await systemctl('stop', 'engined.socket', 'engined.service');
  await import('../storage/drivers-agree.test.js');
} else test('images with the driver zfs', { skip: 'no ZFS: npm run test:vm -- zfs' });
