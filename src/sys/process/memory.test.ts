import assert from 'node:assert/strict';
import { test } from 'node:test';
import { releaseWhenIdle } from './memory.js';
import { residentBytes } from './resident-bytes.js';

test('memory is looked at when the process rests, every ten seconds, and else once a minute', async (t) => {
  let [usedMs, looks] = [300, 0];
  t.mock.timers.enable({ apis: ['setInterval'] });
  t.mock.method(process, 'cpuUsage', () => ({ user: usedMs * 1000, system: 0 }));
  const stop = releaseWhenIdle(() => {
    looks += 1;
    return false;
  });
  /** Returns after how many seconds of so much work in each 2.5 s memory is looked at. */
  const lookedAtAfter = async (workMs: number): Promise<number> => {
    const before = looks;
    for (let seconds = 2.5; seconds < 120; seconds += 2.5) {
      usedMs += workMs;
      t.mock.timers.tick(2500);
      // A look reads the same file before it asks.
      for (let reads = 0; reads < 3; reads++) await residentBytes();
      if (looks > before) return seconds;
    }
    return Infinity;
  };
  assert.equal(await lookedAtAfter(0), 5, 'the first time has the start in it');
  assert.equal(await lookedAtAfter(0), 10);
  assert.equal(await lookedAtAfter(200), 60);
  assert.equal(await lookedAtAfter(20), 10);
  stop();
  assert.equal(await lookedAtAfter(0), Infinity);
});
