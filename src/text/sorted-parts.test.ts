import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sortedParts } from './sorted-parts.js';
import { whole } from './turns.js';

/** Numbers without an order, the same in each run. */
function scattered(count: number): string[] {
  return Array.from({ length: count }, (_, at) => String((at * 7919) % 100_003));
}

test('many texts are sorted as few are, each of them kept', () => {
  for (const count of [0, 1, 1999, 2000, 2001, 4000, 9001]) {
    const texts = [...scattered(count), ...scattered(Math.floor(count / 3))];
    assert.deepEqual(whole(sortedParts(texts)), texts.toSorted());
  }
  const odd = ['é', 'z', 'E', '', '\uFFFD', '\u{1F600}'];
  assert.deepEqual(whole(sortedParts(odd)), ['', 'E', 'z', 'é', '\u{1F600}', '\uFFFD']);
});

test('each part of the work is about a few thousand texts', () => {
  const texts = scattered(40_000);
  const work = sortedParts(texts);
  let parts = 0;
  while (work.next().done !== true) parts++;
  // Once to sort each run, and once more for each of the five times that all are merged.
  assert.ok(parts >= 20 + 20 * 4, `${parts} parts`);
});
