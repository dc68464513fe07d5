/**
 * Kills of a daemon on ZFS in the middle of its work. The file system's figure is that of the dataset that has the data
 * root, with all those below it. The long run: `ENGINE_CHURN_ROUNDS=200 npm run test:vm -- --native zfs-kills`.
 */
import { after, describe, test } from 'node:test';
import { checkKills, makeKept } from '../support/churn-check.js';
import { Cleanup } from '../support/cleanup.js';
import { engined } from '../support/engined.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { IS_NATIVE, systemctl } from '../support/machine.js';
import { hasZfs, run, ZfsPool } from '../support/zfs-pool.js';

const ROUNDS = Number(process.env['ENGINE_CHURN_ROUNDS'] ?? 10);
const POOL = 'churn';
const DATASET = `${POOL}/data`;
/** An emulated processor takes so many times as long as another one. */
const SLOWNESS = IS_NATIVE ? 2 : 15;

const skip = hasZfs() ? false : 'no ZFS: npm run test:vm -- zfs';

/** Returns the bytes of the data root and of all layers and containers, once what was destroyed is freed. */
function usedBytes(): number {
  run('zpool', 'wait', '-t', 'free', POOL);
  run('zpool', 'sync', POOL);
  return Number(run('zfs', 'list', '-Hp', '-o', 'used', DATASET));
}

const cleanup = new Cleanup();
after(() => cleanup.run());

describe('kills in the middle', { skip }, () => {
  test('of pulls, commits, creations, removals and prunes leave no bytes behind', async (context) => {
    await systemctl('stop', 'engined.socket', 'engined.service');
    const pool = new ZfsPool(POOL);
    cleanup.add(async () => pool.remove());
    run('zfs', 'create', DATASET);
    const dataRoot = `/${DATASET}`;
    const args = ['--storage-driver=zfs', '--data-root', dataRoot, '--exec-opt=native.cgroupdriver=cgroupfs'];
    const { engine, registry } = await startEngineWithRegistry(cleanup, engined({ args }));
    await makeKept(engine, registry.reference);
    const scene = { engine, registry, dataRoot, store: 'zfs', usedBytes };
    context.diagnostic(await checkKills({ ...scene, rounds: ROUNDS, slowness: SLOWNESS }));
  });
});
