import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isEngineError } from '../../errors/engine-error.js';
import { parseUnixTime } from './unix-time.js';

test('seconds with or without a fraction become nanoseconds', () => {
  const cases: [string, bigint | undefined][] = [
    ['', undefined],
    ['-1', undefined],
    ['-1.5', undefined],
    ['0', 0n],
    ['12', 12_000_000_000n],
    ['+12.5', 12_500_000_000n],
    ['1.1234567890123', 1_123_456_789n],
    ['253402300799', 253_402_300_799_000_000_000n],
    ['-62135596800', -62_135_596_800_000_000_000n],
  ];
  for (const [text, expected] of cases) assert.equal(parseUnixTime('since', text), expected, text);
});

test('what no clock can show is out of range, however long it is', () => {
  const beyond = [
    '253402300800',
    '-62135596801',
    '9'.repeat(40),
    '0'.repeat(60_000),
    `1.${'9'.repeat(30)}`,
    `-${'9'.repeat(60_000)}`,
  ];
  for (const [fault, texts] of [
    ['value out of range', beyond],
    ['invalid syntax', ['x', '1.', '.5', '1.x', '--1', '1e3']],
  ] as const) {
    for (const text of texts) {
      assert.throws(
        () => parseUnixTime('until', text),
        (error) =>
          isEngineError(error, 'invalid') &&
          error.message.startsWith('invalid until: ') &&
          error.message.endsWith(fault),
        text.slice(0, 50),
      );
    }
  }
});
