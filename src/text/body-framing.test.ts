import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import { ChunkedBody, SizedBody } from './body-framing.js';

/** The body as it comes out when it comes in pieces of a size. */
function decoded(text: string, size: number): { body: string; isComplete: boolean } {
  const framing = new ChunkedBody();
  let body = '';
  for (let at = 0; at < text.length && !framing.isComplete; at += size) {
    const piece = Buffer.from(text.slice(at, at + size), 'latin1');
    body += piece.toString('latin1', 0, framing.extract(piece));
  }
  return { body, isComplete: framing.isComplete };
}

test('chunks are put together wherever they are cut', () => {
  const text =
    'a\r\n0123456789\r\n1;name="value"\r\n!\r\n000C ; x\r\n\r\n0\r\n\r\nabcde\r\n0\r\nTrailer: x\r\n' +
    'Other: y\r\n\r\nGET / HTTP/1.1\r\n';
  for (let size = 1; size <= text.length; size++)
    assert.deepEqual(
      decoded(text, size),
      { body: '0123456789!\r\n0\r\n\r\nabcde', isComplete: true },
      `pieces of ${size}`,
    );
  assert.deepEqual(decoded(text.slice(0, -40), 7), { body: '0123456789!\r\n0\r\n\r\nabcde', isComplete: false });
});

test('what are no chunks is refused', () => {
  for (const text of [
    '\r\n',
    'x\r\n',
    '-1\r\n',
    '0x5\r\n',
    '1 \n',
    '5\nabcde\r\n',
    '5\r\nabcdef\r\n',
    '1\r\na\n',
    '1000000000000\r\n',
    '1;\x01\r\n',
    '1\r\r\n',
    `${'1'.padStart(5000, '0')}\r\n`,
    '1'.padStart(5000, '0'),
    `0\r\n${'A: b\r\n'.repeat(10_000)}`,
  ]) {
    for (const size of [1, 3, 100_000])
      assert.throws(
        () => decoded(text, size),
        (error) => isEngineError(error, 'invalid') && error.code === 'BAD_CHUNKS',
        JSON.stringify(text.slice(0, 40)),
      );
  }
});

test('a sized body ends with its last byte', () => {
  const framing = new SizedBody(5);
  assert.equal(framing.wantedBytes, 5);
  assert.equal(framing.extract(Buffer.from('abc')), 3);
  assert.equal(framing.isComplete, false);
  assert.equal(framing.wantedBytes, 2);
  assert.equal(framing.extract(Buffer.from('de')), 2);
  assert.equal(framing.isComplete, true);
});
