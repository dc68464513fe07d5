import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { BuildStatus } from '../../../ports/build.js';
import { PullStatuses } from './pull-statuses.js';

function rowsOf(records: readonly object[]): readonly string[] {
  const told: BuildStatus[] = [];
  const statuses = new PullStatuses({ status: (status) => void told.push(status) }, 'step');
  statuses.add(records.map((record) => `${JSON.stringify(record)}\r\n`).join(''));
  assert.ok(told.every(({ vertex, started }) => vertex === 'step' && started !== undefined));
  return told.map(
    ({ id, name, current, total, completed }) => `${id} ${name} ${current}/${total}${completed ? ' done' : ''}`,
  );
}

const layer = (phase: string, digest: string, current = 0): object => ({
  kind: 'layer',
  layer: 0,
  digest,
  phase,
  current,
  total: 9,
});

test('a layer shows its bytes up to the last one, and then its unpacking, each of which ends once', () => {
  const phases = ['wait', 'download', 'verify', 'extract', 'extract', 'done'];
  assert.deepEqual(rowsOf(phases.map((phase, at) => layer(phase, 'sha256:a', at > 1 ? 9 : 4))), [
    'sha256:a downloading 4/9',
    'sha256:a done 9/9 done',
    'extracting sha256:a extract 0/0',
    'extracting sha256:a extract 0/0',
    'extracting sha256:a extract 0/0 done',
  ]);
});

test('a layer that an image has twice does not begin again', () => {
  const phases = ['download', 'extract', 'done'];
  const once = phases.map((phase) => layer(phase, 'sha256:a', 9));
  assert.deepEqual(rowsOf([...once, ...once]), rowsOf(once));
});

test('who comes late to a pull sees what has ended; layers that were here have no rows', () => {
  assert.deepEqual(rowsOf([layer('cached', 'sha256:a', 9), layer('done', 'sha256:b', 9)]), [
    'sha256:b done 9/9 done',
    'extracting sha256:b extract 0/0 done',
  ]);
});

test('what was resolved is shown with its digest', () => {
  const pull = (phase: string, reference: string): object => ({ kind: 'pull', phase, reference, digest: 'sha256:d' });
  assert.deepEqual(rowsOf([pull('resolve', 'host/name:1'), pull('done', 'host/name:1')]), [
    'resolve host/name:1@sha256:d  0/0 done',
  ]);
  assert.deepEqual(rowsOf([pull('resolve', 'host/name@sha256:d')]), ['resolve host/name@sha256:d  0/0 done']);
});
