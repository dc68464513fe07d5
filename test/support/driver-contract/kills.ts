/**
 * Tests of drivers: the process ends at any moment, and the next one finds whole layers or none. COUNT=200 SEED=1 makes
 * so many kills at moments that the seed gives.
 */
import assert from 'node:assert/strict';
import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { buffer } from 'node:stream/consumers';
import { randomNumbers } from '../random-numbers.js';
import type { DriverHarness, DriverTests } from './harness.js';

const KILLS = Number(process.env['COUNT'] ?? 2);
const SEED = Number(process.env['SEED'] ?? 7);
/** By then the process has gone through all its work at least once. */
const MAX_DELAY_MS = 400;

export const KILL_TESTS: DriverTests = {
  async 'a process that is killed leaves whole layers, and the next start removes the rest'(h) {
    const random = randomNumbers(SEED);
    for (let kill = 0; kill < KILLS; kill++) {
      const worker = fork(join(import.meta.dirname, 'busy-store.js'), [
        h.driver.shownName ?? h.driver.name,
        join(h.temp, 'killed'),
      ]);
      const ended = once(worker, 'exit');
      await Promise.race([once(worker, 'message'), ended.then(() => assert.fail('the process ended by itself'))]);
      await sleep(random(MAX_DELAY_MS));
      worker.kill('SIGKILL');
      await ended;
      await checkStore(h, 'killed');
    }
  },
};

/** The daemon removes what a step of a build leaves without looking at it. */
const isOfStep = (id: string): boolean => id.endsWith('-step');

/** Every layer has its tar, every container can be mounted, and when they are removed nothing is left. */
async function checkStore(h: DriverHarness, name: string): Promise<void> {
  const store = await h.open(name);
  await store.load();
  const { layers } = store.directories();
  assert.deepEqual(readdirSync(join(h.temp, name, 'layers')).sort(), layers.map((layer) => layer.name).sort());
  // The stream fails when the tar is not that of the digest.
  for (const { chainId } of layers) assert.ok((await buffer(store.tarStream(chainId))).length > 0);
  for (const id of store.writableIds()) {
    if (!isOfStep(id)) {
      const root = await store.mount(id);
      assert.ok(readdirSync(root).includes('.dockerenv'));
      await store.changes(id);
    }
    await store.removeWritable(id);
  }
  await store.collect();
  await store.close();
  for (const shelf of ['layers', 'index', 'writable', 'staging', 'trash'])
    assert.deepEqual(readdirSync(join(h.temp, name, shelf)), [], shelf);
}
