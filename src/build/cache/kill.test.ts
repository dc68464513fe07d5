/** A daemon may be killed at any moment. A program that does nothing but change the cache stands for it. */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { randomInt } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { inlinePool } from '../../../test/support/inline-pool.js';
import { silentLog } from '../../../test/support/silent-log.js';
import { checkDataRoot } from '../../inventory/fsck.js';
import { readOwners } from '../../inventory/offline-owners.js';
import { FileBuildCache } from './build-cache.js';

const ADDER = fileURLToPath(new URL('../../../test/support/cache-adder.js', import.meta.url));
const LIVES = 3;
const MAX_LINES = 60;

function open(dataRoot: string): FileBuildCache {
  return new FileBuildCache({
    root: join(dataRoot, 'builder/cache'),
    layers: { find: () => undefined, retain: () => undefined, release: () => Promise.resolve([]) },
    pool: inlinePool,
    owner: { uid: 0, gid: 0 },
    imageLayers: () => new Set(),
    log: silentLog,
  });
}

/** Lets the program change the cache, and kills it after a random number of changes. */
async function liveAndDie(dataRoot: string, life: number, told: Set<string>): Promise<void> {
  const child = spawn(process.execPath, [ADDER, dataRoot, String(life)], { stdio: ['ignore', 'pipe', 'inherit'] });
  const exit = once(child, 'exit');
  let left = randomInt(1, MAX_LINES);
  for await (const line of createInterface(child.stdout)) {
    if (line.startsWith('+')) told.add(line.slice(1));
    else told.delete(line.slice(1));
    if (--left === 0) child.kill('SIGKILL');
  }
  await exit;
}

test('kills lose nothing that was told, and the next start leaves nothing half', async () => {
  const dataRoot = await mkdtemp(join(tmpdir(), 'engined-kill-'));
  try {
    const told = new Set<string>();
    for (let life = 0; life < LIVES; life++) {
      await liveAndDie(dataRoot, life, told);
      const cache = open(dataRoot);
      await cache.load();
      for (const key of told) {
        const found = await cache.find(key);
        assert.equal(found?.key, key);
        await found.release();
      }
      await cache.close();
      const directories = join(dataRoot, 'builder/cache/directories');
      while ((await readdir(directories)).some((name) => name.startsWith('.'))) await new Promise(setImmediate);
      const owners = (): ReturnType<typeof readOwners> => readOwners(dataRoot);
      const { findings } = await checkDataRoot({ dataRoot, pool: inlinePool, owners }, false);
      assert.deepEqual(findings, []);
      const again = open(dataRoot);
      assert.deepEqual(await again.load(), { removed: [] });
      await again.close();
    }
    assert.ok(told.size > 0);
  } finally {
    await rm(dataRoot, { recursive: true });
  }
});
