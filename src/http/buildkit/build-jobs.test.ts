import assert from 'node:assert/strict';
import { setTimeout as delay } from 'node:timers/promises';
import { test } from 'node:test';
import { create } from '@bufbuild/protobuf';
import { BuildJobs } from './build-jobs.js';
import { ProgressLog } from './progress-log.js';
import { SolveRequestSchema } from './proto/gen/control_pb.js';

const { signal } = new AbortController();
const PATIENCE_MS = 20;

test('calls wait for a build that is prepared, for as long as that takes, and for no other', async () => {
  const jobs = new BuildJobs();
  const early = jobs.wait('known', PATIENCE_MS, signal);
  assert.equal(await jobs.wait('other', PATIENCE_MS, signal), undefined);
  await jobs.preparing('known', () => delay(5 * PATIENCE_MS));
  const job = jobs.begin(create(SolveRequestSchema, { ref: 'known' }), new ProgressLog(undefined));
  assert.equal(await early, undefined, 'nobody prepared it when the time was up');
  assert.equal(await jobs.wait('known', 0, signal), job);
  const waiting = jobs.preparing('second', () => delay(5 * PATIENCE_MS));
  const late = jobs.wait('second', PATIENCE_MS, signal);
  await waiting;
  const second = jobs.begin(create(SolveRequestSchema, { ref: 'second' }), new ProgressLog(undefined));
  assert.equal(await late, second);
  const failing = jobs.preparing('third', () => delay(2 * PATIENCE_MS).then(() => assert.fail('no disk')));
  const never = jobs.wait('third', PATIENCE_MS, signal);
  await assert.rejects(failing, /no disk/);
  assert.equal(await never, undefined);
});
