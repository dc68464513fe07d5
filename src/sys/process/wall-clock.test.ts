import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { wallClockNs } from './wall-clock.js';

test('the time is neither behind nor ahead of what another program reads', () => {
  for (let count = 0; count < 20; count++) {
    const before = wallClockNs();
    const other = BigInt(execFileSync('date', ['+%s%N'], { encoding: 'utf8' }).trim());
    assert.ok(before <= other && other <= wallClockNs());
  }
});
