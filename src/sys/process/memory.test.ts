import assert from 'node:assert/strict';
import { test } from 'node:test';
import { getHeapStatistics } from 'node:v8';
import { waitFor } from '../../../test/support/wait.js';
import { collector } from './collector.js';
import { releaseWhenIdle } from './memory.js';

test('garbage that has become old is collected before the process has grown by much', async (t) => {
  t.mock.timers.enable({ apis: ['setInterval'] });
  t.after(releaseWhenIdle(() => true));
  // The first release comes in any case.
  for (const which of ['first', 'second']) {
    const end = leaveOldGarbage();
    let looks = 0;
    await waitFor(`the ${which} collection`, () => {
      t.mock.timers.tick(2500);
      looks += 1;
      assert.ok(looks < 40, 'V8 itself would find it by then');
      return usedMiB() < end - 2;
    });
  }
});

test('memory is released when the process rests, every ten seconds, and else once a minute, or later', (t) => {
  let [usedMs, looks] = [300, 0];
  let isTransferring = false;
  t.mock.timers.enable({ apis: ['setInterval'] });
  t.mock.method(process, 'cpuUsage', () => ({ user: usedMs * 1000, system: 0 }));
  const stop = releaseWhenIdle((rests) => {
    const mayRelease = rests || !isTransferring;
    if (mayRelease) looks += 1;
    return mayRelease;
  });
  /** Returns after how many seconds of so much work in each 2.5 s memory is looked at. */
  const lookedAtAfter = (workMs: number): number => {
    const before = looks;
    for (let seconds = 2.5; seconds < 120; seconds += 2.5) {
      usedMs += workMs;
      t.mock.timers.tick(2500);
      if (looks > before) return seconds;
    }
    return Infinity;
  };
  assert.equal(lookedAtAfter(0), 5, 'the first time has the start in it');
  assert.equal(lookedAtAfter(0), 10);
  assert.equal(lookedAtAfter(200), 60);
  assert.equal(lookedAtAfter(20), 10);
  isTransferring = true;
  assert.equal(lookedAtAfter(200), Infinity, 'a transfer is not held up');
  isTransferring = false;
  assert.equal(lookedAtAfter(200), 2.5, 'the release comes as soon as the transfer is over');
  isTransferring = true;
  assert.equal(lookedAtAfter(20), 10, 'a slow transfer has time for it');
  stop();
  assert.equal(lookedAtAfter(0), Infinity);
});

function usedMiB(): number {
  return getHeapStatistics().used_heap_size / 2 ** 20;
}

/** Returns how much is in use then. Objects that two collections of the young generation find in use are old. */
function leaveOldGarbage(): number {
  const objects = Array.from({ length: 30_000 }, (_, index) => ({ index, text: `${index} of them` }));
  for (let time = 0; time < 2; time++) collector()?.({ type: 'minor' });
  assert.equal(objects.length, 30_000);
  return usedMiB();
}
