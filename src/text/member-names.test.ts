import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hasMembers, memberNames } from './member-names.js';

test('names are those of Object.keys; of a long object they are found once', () => {
  const short = { b: 1, '2': 2, a: 3 };
  assert.deepEqual(memberNames(short), ['2', 'b', 'a']);
  assert.deepEqual(memberNames(['x']), ['0']);
  const long = Object.fromEntries(Array.from({ length: 2000 }, (_, at) => [`${at}/tcp`, at]));
  const names = memberNames(long);
  assert.deepEqual(names, Object.keys(long));
  assert.equal(memberNames(long), names);
});

test('an object has members or has none', () => {
  for (const none of [null, undefined, {}, []]) assert.equal(hasMembers(none), false);
  assert.equal(hasMembers({ a: undefined }), true);
});
