import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventLabels } from './event-labels.js';

test('labels of an event are all of them, unless they are very long', () => {
  assert.deepEqual(eventLabels(undefined), {});
  const usual = { a: 'b', __proto: 'c' };
  assert.equal(eventLabels(usual), usual);
  const long = Object.fromEntries(Array.from({ length: 300 }, (_, at) => [`l${at}`, 'x'.repeat(1024)]));
  const shown = eventLabels(long);
  assert.equal(eventLabels(long), shown);
  const { 'engine.labels-left-out': leftOut, ...kept } = shown;
  assert.equal(Object.keys(kept).length + Number(leftOut), 300);
  assert.equal(kept['l0'], long['l0']);
  assert.ok(JSON.stringify(shown).length < 300 << 10);
});
