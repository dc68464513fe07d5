import assert from 'node:assert/strict';
import { test } from 'node:test';
import { runPs } from './top.js';

test('rows of the given processes alone; what is left over belongs to the last column', async () => {
  const { titles, rows } = await runPs([process.pid], '-o pid,args');
  assert.deepEqual(titles, ['PID', 'COMMAND']);
  assert.equal(rows.length, 1);
  assert.match(rows[0]?.join('|') ?? '', new RegExp(`^${process.pid}\\|.*node.* `));
});

test('faults are told in the words of the program, in one line', async () => {
  await assert.rejects(runPs([1], 'nope'), /^(EngineError: )?ps: error: .+$/);
  await assert.rejects(runPs([1], '-o args'), /Couldn't find PID field in ps output/);
});
