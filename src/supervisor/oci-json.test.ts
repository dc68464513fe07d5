import assert from 'node:assert/strict';
import { test } from 'node:test';
import { encodeOci } from './oci-json.js';

test('bigints become plain numbers, everything else is JSON', () => {
  const text = encodeOci({ rlimits: [{ soft: 0xffff_ffff_ffff_ffffn, hard: 5 }], env: ['A="bigint:1"'] }).toString();
  assert.equal(text, '{"rlimits":[{"soft":18446744073709551615,"hard":5}],"env":["A=\\"bigint:1\\""]}');
});
