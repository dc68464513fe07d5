import assert from 'node:assert/strict';
import { test } from 'node:test';
import { closeFrame, frame, FrameParser, Opcode, ProtocolError } from './frames.js';

/** Makes a frame as clients send it. */
function masked(
  opcode: number,
  payload: Buffer | string,
  options: { final?: boolean; mask?: number[]; reserved?: number } = {},
): Buffer {
  const bytes = Buffer.from(payload);
  const mask = Buffer.from(options.mask ?? [1, 2, 3, 4]);
  const head = frame(opcode, bytes.length);
  head[0] = (options.final === false ? 0 : 0x80) | (options.reserved ?? 0) | opcode;
  head[1] = (head[1] ?? 0) | 0x80;
  return Buffer.concat([head, mask, bytes.map((byte, i) => byte ^ (mask[i % 4] ?? 0))]);
}

/** Shows what a parser makes of pieces: data joined, control frames in angle brackets. */
function parse(pieces: readonly Buffer[]): string {
  let seen = '';
  const parser = new FrameParser({
    data: (piece) => void (seen += piece.toString('latin1')),
    ping: (payload) => void (seen += `<ping ${payload.toString()}>`),
    close: () => void (seen += '<close>'),
  });
  for (const piece of pieces) parser.push(piece);
  return seen;
}

test('data comes through whatever its length and however it is cut', () => {
  for (const length of [0, 1, 125, 126, 127, 65_535, 65_536, 200_000]) {
    const text = 'abcdefg'.repeat(Math.ceil(length / 7)).slice(0, length);
    const bytes = Buffer.concat([masked(Opcode.binary, text), masked(Opcode.text, '!')]);
    assert.equal(parse([bytes]), `${text}!`);
    if (length > 70_000) continue;
    const step = Math.max(1, Math.floor(length / 50));
    const pieces = Array.from({ length: Math.ceil(bytes.length / step) }, (_, i) =>
      bytes.subarray(i * step, (i + 1) * step),
    );
    assert.equal(parse(pieces), `${text}!`, `cut every ${step} of ${length}`);
  }
});

test('messages may be fragmented, with control frames between; nothing counts behind a close', () => {
  const bytes = Buffer.concat([
    masked(1, 'a', { final: false }),
    masked(9, 'x'),
    masked(0, 'b', { final: false }),
    masked(10, ''),
    masked(0, 'c'),
    masked(8, '\x03\xe8'),
    masked(1, 'd'),
  ]);
  assert.equal(parse([bytes]), 'a<ping x>bc<close>');
  assert.equal(parse([...bytes].map((byte) => Buffer.of(byte))), 'a<ping x>bc<close>');
});

test('what a client must not send is an error', () => {
  const unmasked = Buffer.concat([frame(Opcode.text, 1), Buffer.from('a')]);
  const tooLong = Buffer.from([0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0]);
  const wrong = [
    unmasked,
    masked(1, 'a', { reserved: 0x40 }),
    masked(3, 'a'),
    masked(11, ''),
    masked(0, 'a'),
    Buffer.concat([masked(1, 'a', { final: false }), masked(1, 'b')]),
    masked(9, 'x'.repeat(126)),
    masked(9, 'x', { final: false }),
    tooLong,
  ];
  for (const bytes of wrong) assert.throws(() => parse([bytes]), ProtocolError, bytes.toString('hex').slice(0, 40));
});

test('frames of the server are not masked, with the shortest length', () => {
  assert.deepEqual(frame(Opcode.binary, 125), Buffer.from([0x82, 125]));
  assert.deepEqual(frame(Opcode.text, 126), Buffer.from([0x81, 126, 0, 126]));
  assert.deepEqual(frame(Opcode.binary, 65_536), Buffer.from([0x82, 127, 0, 0, 0, 0, 0, 1, 0, 0]));
  assert.deepEqual(closeFrame(1000), Buffer.from([0x88, 2, 0x03, 0xe8]));
});
