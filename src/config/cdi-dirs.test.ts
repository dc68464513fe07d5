import assert from 'node:assert/strict';
import { test } from 'node:test';
import { cdiDirs } from './cdi-dirs.js';

test('directories are clean; there are none when the feature or the list is switched off', () => {
  assert.deepEqual(cdiDirs(['/etc/cdi/', '/run//cdi/../x', '/'], {}), ['/etc/cdi', '/run/x', '/']);
  assert.deepEqual(cdiDirs(['/etc/cdi'], { cdi: true }), ['/etc/cdi']);
  assert.deepEqual(cdiDirs(['/etc/cdi'], { cdi: false }), []);
  assert.deepEqual(cdiDirs([''], {}), []);
});
