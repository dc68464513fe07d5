import assert from 'node:assert/strict';
import { test } from 'node:test';
import { randomNumbers } from '../../../test/support/random-numbers.js';
import { JsonEncoder } from './json-encoder.js';
import { MAX_LINE_BYTES } from './record-format.js';

const SPECIAL = ['"', '\\', '<', '>', '&', '\t', '\r', '\0', '\x1b', '\x7f', 'é', '\u2028', '😀', '\x1f', ' ', '='];
const LENGTHS = [0, 1, 14, 15, 16, 17, 31, 32, 33, 100, 101, 1000, MAX_LINE_BYTES - 2, MAX_LINE_BYTES - 1];

/** Encodes lines one by one, as those are that come in pieces. */
function expected(encoder: JsonEncoder, source: Buffer): Buffer {
  const out = Buffer.alloc(encoder.maxRecordBytes);
  const records: Buffer[] = [];
  for (let at = 0, newline; (newline = source.indexOf(10, at)) >= 0; at = newline + 1)
    records.push(Buffer.from(out.subarray(0, encoder.encode(source, at, newline, undefined, out, 0))));
  return Buffer.concat(records);
}

/** Encodes lines together, into buffers that have room for `bytes` besides the largest record. */
function together(encoder: JsonEncoder, source: Buffer, bytes: number): Buffer {
  const pieces: Buffer[] = [];
  const out = Buffer.alloc(2 + bytes + encoder.maxRecordBytes);
  for (let at = 0; at < source.length;) {
    out.fill(0xff);
    const begin = pieces.length % 3;
    const next = encoder.encodeLines(source, at, out, begin, begin + bytes);
    if (next === at) break;
    pieces.push(Buffer.from(out.subarray(begin, encoder.end)));
    at = next;
  }
  return Buffer.concat(pieces);
}

function lines(random: (limit: number) => number, count: number, specialOfThousand: number): Buffer {
  const line = (): string => {
    const length = LENGTHS[random(LENGTHS.length - (random(20) === 0 ? 0 : 3))] ?? 0;
    const text = Buffer.alloc(length, 'The quick brown fox jumps over the lazy dog; ').toString();
    if (random(1000) >= specialOfThousand || length < 4) return text;
    // It does not become longer, as the longest one would be too long.
    const at = random(length - 3);
    return `${text.slice(0, at)}${SPECIAL[random(SPECIAL.length)]}${text.slice(at + 4)}`;
  };
  return Buffer.from(`${Array.from({ length: count }, line).join('\n')}\n`);
}

test('lines that are encoded together are as those that are encoded one by one', () => {
  const random = randomNumbers(7);
  for (const attrs of [{}, { label: 'x'.repeat(3000) }, { label: 'x'.repeat(5000) }])
    for (const specialOfThousand of [0, 2, 50, 700]) {
      const encoder = new JsonEncoder(attrs);
      encoder.begin('stderr', 1_234_567_890_123_456_789n);
      const source = lines(random, 1500, specialOfThousand);
      const wanted = expected(encoder, source);
      for (const bytes of [1, 4000, 300_000])
        assert.ok(together(encoder, source, bytes).equals(wanted), `${specialOfThousand}, ${bytes}`);
    }
});

test('a line that is too long or has no end is left to the caller, and so is all behind it', () => {
  const encoder = new JsonEncoder();
  encoder.begin('stdout', 0n);
  for (const count of [20, 300])
    for (const length of [1, 2000, MAX_LINE_BYTES - 1, MAX_LINE_BYTES, MAX_LINE_BYTES + 1, 100_000])
      for (const end of length >= MAX_LINE_BYTES ? ['', '\nmore\n'] : ['']) {
        const before = lines(randomNumbers(1), count, 0);
        const source = Buffer.concat([before, Buffer.from('a'.repeat(length) + end)]);
        const out = Buffer.alloc(4_000_000);
        assert.equal(encoder.encodeLines(source, 0, out, 0, 3_000_000), before.length, `${length}`);
        assert.ok(out.subarray(0, encoder.end).equals(expected(encoder, before)));
      }
});
