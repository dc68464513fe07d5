import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isAtLeast, parseVersion } from './version.js';

test('a version has the two numbers that its text begins with', () => {
  assert.deepEqual(parseVersion('6.1.0-28-amd64'), [6, 1]);
  assert.deepEqual(parseVersion('6.15-rc3'), [6, 15]);
  assert.deepEqual(parseVersion('5'), [5, 0]);
  assert.deepEqual(parseVersion('next'), [0, 0]);
});

test('versions are compared by their numbers, the first one before the second', () => {
  assert.ok(isAtLeast([6, 15], [6, 15]));
  assert.ok(isAtLeast([7, 0], [6, 15]));
  assert.ok(isAtLeast([6, 15], [6, 2]));
  assert.ok(!isAtLeast([6, 14], [6, 15]));
  assert.ok(!isAtLeast([5, 99], [6, 1]));
});
