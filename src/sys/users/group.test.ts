import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { isEngineError } from '../../errors/engine-error.js';
import { findGroupId, groupId } from './group.js';

test('a group is found by number, in the file, and where the name service has it', async () => {
  assert.equal(groupId('4711'), 4711);
  assert.equal(groupId('root'), 0);
  assert.throws(
    () => groupId('no-such-group'),
    (error) => isEngineError(error, 'not-found'),
  );
  // A directory service on the network answers through the same program.
  const dir = mkdtempSync(join(tmpdir(), 'getent-'));
  const path = process.env['PATH'];
  try {
    writeFileSync(
      join(dir, 'getent'),
      '#!/bin/sh\n[ "$1 $2 $3" = "-- group remote" ] && echo "remote:*:70001:someone"\n',
      { mode: 0o755 },
    );
    process.env['PATH'] = `${dir}:${path ?? ''}`;
    assert.equal(groupId('remote'), 70001);
    assert.deepEqual(await Promise.all(['remote', 'root', '4711'].map(findGroupId)), [70001, 0, 4711]);
    await assert.rejects(findGroupId('--help'), (error) => isEngineError(error, 'not-found'));
    assert.throws(
      () => groupId('--help'),
      (error) => isEngineError(error, 'not-found'),
    );
  } finally {
    process.env['PATH'] = path;
    rmSync(dir, { recursive: true });
  }
});
