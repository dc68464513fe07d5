import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SentEntries } from './sent-entries.js';

const [a, b, c, d] = ['aaaa', 'bbbb', 'cccc', 'dddd'].map((text) => Buffer.from(text)) as [
  Buffer,
  Buffer,
  Buffer,
  Buffer,
];

test('entries of which something is left are taken back as a whole, and those that were not written', () => {
  for (const [left, expected] of [
    ['', [c, d]],
    ['b', [b, c, d]],
    ['bbcc', [b, c, d]],
    ['aaaabbbbc', [a, b, c, d]],
    ['cc', [c, d]],
    ['of another', [c, d]],
  ] as const) {
    const sent = new SentEntries();
    sent.add([a, b]);
    sent.written(100);
    sent.add([c, d]);
    assert.deepEqual(sent.takeBack(Buffer.from(left), [c, d]), expected, left);
    assert.deepEqual(sent.takeBack(Buffer.from('bb'), [d]), [d], 'all is forgotten');
  }
});

test('no more is kept than the FIFO has room for', () => {
  const sent = new SentEntries();
  sent.add([a, b, c]);
  sent.written(6);
  assert.deepEqual(sent.takeBack(Buffer.from('aaaabb'), []), []);
  sent.add([a, b, c]);
  sent.written(6);
  assert.deepEqual(sent.takeBack(Buffer.from('bbcccc'), []), [b, c]);
});
