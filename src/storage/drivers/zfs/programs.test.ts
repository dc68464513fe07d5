import assert from 'node:assert/strict';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { ProgramResult } from '../../../sys/process/spawn.js';
import { ZfsPrograms } from './programs.js';

const MINUTE = 60_000;
const done: ProgramResult = { stdout: 'out', stderr: '', exitCode: 0 };

beforeEach(() => mock.timers.enable({ apis: ['setTimeout'] }));
afterEach(() => mock.timers.reset());

test('a program that does not end is given up, and no other is started until it ends', async () => {
  const begun: string[] = [];
  const ends: ((result: ProgramResult) => void)[] = [];
  const programs = new ZfsPrograms((program, args) => {
    begun.push([program, ...args].join(' '));
    return new Promise((resolve) => ends.push(resolve));
  });
  const stuck = { kind: 'unavailable', code: 'ZFS_STUCK', message: /^zfs destroy a has not ended within 10 minutes: / };
  const first = assert.rejects(programs.run('zfs', ['destroy', 'a']), stuck);
  await turn();
  mock.timers.tick(9 * MINUTE);
  const others = ['b', 'c', 'd', 'e'].map((name) => programs.run('zfs', ['destroy', name]));
  // The last one waits for the first, as four run at once.
  const last = assert.rejects(others[3] ?? first, stuck);
  await turn();
  assert.equal(begun.length, 4);
  for (const end of ends.slice(1)) end(done);
  assert.deepEqual(await Promise.all(others.slice(0, 3)), ['out', 'out', 'out']);
  mock.timers.tick(MINUTE);
  await Promise.all([first, last]);
  await assert.rejects(programs.run('zpool', ['status']), stuck);
  assert.equal(begun.length, 4);
  ends[0]?.(done);
  await turn();
  const after = programs.run('zpool', ['status']);
  await turn();
  ends[4]?.({ stdout: '', stderr: 'cannot open: dataset does not exist\n', exitCode: 1 });
  await assert.rejects(after, { kind: 'internal', code: 'ZFS_MISSING' });
  assert.equal(begun.at(-1), 'zpool status');
});
