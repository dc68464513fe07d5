import assert from 'node:assert/strict';
import { test } from 'node:test';
import { packChanges, unpackChanges } from './packed-changes.js';

test('changes come out as they were packed', () => {
  const changes = [
    { path: '/', kind: 0 },
    { path: '/é/\ufffd', kind: 1 },
    { path: `/${'long'.repeat(1000)}`, kind: 2 },
  ] as const;
  const packed = packChanges(changes);
  assert.ok(packed);
  assert.deepEqual([...unpackChanges(packed)], changes);
  assert.deepEqual([...unpackChanges(packChanges([]) ?? packed)], []);
});
