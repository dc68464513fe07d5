import assert from 'node:assert/strict';
import { chmodSync, mkdirSync, mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Logger } from '../ports/logger.js';
import { whyNotShown } from '../sys/mount/shown-owners.js';
import { foundDataRoot, openDataRoot } from './data-root.js';

const ranges = [{ containerId: 0, hostId: 310_000, count: 65_536 }];
const maps = { uids: ranges, gids: ranges };

test('data of remapped users: once for all, apart where that cannot be, and where they are apart already', async () => {
  const temp = mkdtempSync(join(tmpdir(), 'data-root-'));
  const warnings: unknown[] = [];
  const ignored = (): void => undefined;
  const log: Logger = {
    debug: ignored,
    info: ignored,
    warn: (_fields, message) => void warnings.push(message),
    error: ignored,
    child: () => log,
  };
  try {
    chmodSync(temp, 0o711);
    const roots = { dataRoot: join(temp, 'data'), execRoot: join(temp, 'exec') };
    mkdirSync(roots.dataRoot, { mode: 0o710 });
    mkdirSync(roots.execRoot, { mode: 0o711 });
    const apart = { dataRoot: join(temp, 'data/310000.310000'), idMaps: maps, shownMaps: undefined };
    const shown = { dataRoot: roots.dataRoot, idMaps: undefined, shownMaps: maps };
    const plain = { storageDriver: '', features: {} };
    assert.deepEqual(await openDataRoot(roots, undefined, plain, log), { ...shown, shownMaps: undefined });
    assert.deepEqual(await openDataRoot(roots, maps, plain, log), shown);
    assert.deepEqual(readdirSync(roots.dataRoot), []);
    chmodSync(roots.dataRoot, 0o711);
    assert.deepEqual(await openDataRoot(roots, maps, plain, log), shown);
    assert.match(String(warnings.pop()), /may pass through the data root/);
    chmodSync(roots.execRoot, 0o700);
    await assert.rejects(openDataRoot(roots, maps, plain, log), /cannot pass through \S+\/exec: .* another exec-root/);
    assert.deepEqual(warnings, []);
    for (const [wanted, reason] of [
      [{ ...plain, storageDriver: 'btrfs' }, 'the storage driver btrfs cannot show files to other users; overlay2 can'],
      [{ ...plain, features: { 'supervisor-snapshotter': true } }, 'snapshots of the supervisor cannot be shown'],
    ] as const) {
      assert.deepEqual(await openDataRoot(roots, maps, wanted, log), apart);
      assert.ok(String(warnings.pop()).includes(reason), reason);
      assert.equal(statSync(apart.dataRoot).mode & 0o777, 0o710);
      // Data that are there stay where they are.
      assert.deepEqual(foundDataRoot(roots.dataRoot, maps), apart);
      assert.deepEqual(await openDataRoot(roots, maps, plain, log), apart);
      assert.deepEqual(warnings, []);
      rmSync(apart.dataRoot, { recursive: true });
    }
  } finally {
    rmSync(temp, { recursive: true });
  }
});

test('a file system without idmapped mounts is told', async () => {
  assert.equal(await whyNotShown(tmpdir(), maps), undefined);
  assert.match((await whyNotShown('/proc', maps)) ?? '', /^idmapped mounts cannot be had at \/proc: /);
});
