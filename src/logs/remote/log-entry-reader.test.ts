import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isEngineError } from '../../errors/engine-error.js';
import type { StreamName } from '../../ports/logs.js';
import { localFormat } from '../drivers/local-format.js';
import { ALL } from '../log-fixture.js';
import { encodeLogEntry } from './log-entry.js';
import { LogEntryReader } from './log-entry-reader.js';

const entry = (stream: StreamName, line: string | Buffer, isLast?: boolean): Buffer =>
  encodeLogEntry({
    stream,
    timeNs: 1_700_000_000_123_456_789n,
    line: Buffer.from(line),
    piece: isLast === undefined ? undefined : { id: 'a'.repeat(64), ordinal: 1, isLast },
  });

/** Returns the output for bytes that come in pieces of a size. */
function shown(bytes: Buffer, size: number, options: object = {}): string {
  const reader = new LogEntryReader();
  const decoder = localFormat.createDecoder({ ...ALL, ...options }, () => assert.fail('a damaged record'));
  let output = '';
  for (let at = 0; at < bytes.length; at += size) {
    const records = reader.take(bytes.subarray(at, at + size));
    output += decoder.decode(records, records.length).toString('latin1');
  }
  return output;
}

test('entries come whole whatever the pieces are', () => {
  const bytes = Buffer.concat([
    entry('stdout', 'one'),
    entry('stderr', ''),
    entry('stdout', 'thr', false),
    entry('stdout', 'ee', true),
  ]);
  for (const size of [1, 3, 4, 5, 17, bytes.length]) {
    assert.equal(shown(bytes, size), 'one\n\nthree\n', String(size));
    assert.equal(shown(bytes, size, { stdout: false }), '\n');
  }
  assert.match(shown(bytes, 9, { timestamps: true }), /^2023-11-14T22:13:20\.123456789Z one\n/);
});

test('a line that the plugin has joined is shown whole', () => {
  const line = 'x'.repeat(16_384 * 3 + 5);
  assert.equal(shown(entry('stdout', line), 10_000), `${line}\n`);
  assert.equal(shown(entry('stdout', line, false), 10_000), line);
});

test('fields that are not known are passed over', () => {
  const more = Buffer.from([0x30, 0x85, 0x01, 0x3a, 0x02, 1, 2, 0x41, 1, 2, 3, 4, 5, 6, 7, 8, 0x4d, 1, 2, 3, 4]);
  const known = entry('stderr', 'kept').subarray(4);
  const length = Buffer.alloc(4);
  length.writeUInt32BE(known.length + more.length);
  assert.equal(shown(Buffer.concat([length, more, known]), 1000), 'kept\n');
});

test('what is no entry is refused, and nothing larger than a bound is waited for', () => {
  const framed = (...bytes: number[]): Buffer => Buffer.from([0, 0, 0, bytes.length, ...bytes]);
  const refused = [
    Buffer.from([0, 0x10, 0, 1]),
    Buffer.from([0xff, 0xff, 0xff, 0xff]),
    framed(0x1a, 0x05, 1, 2),
    framed(0x10, 0x80),
    framed(0x10, ...Array<number>(10).fill(0xff), 1),
    framed(0x0b),
    framed(0x1a, 0xff, 0xff, 0xff, 0xff, 0x7f),
  ];
  for (const bytes of refused)
    assert.throws(
      () => new LogEntryReader().take(bytes),
      (error) => isEngineError(error, 'internal'),
      bytes.toString('hex'),
    );
});
