import assert from 'node:assert/strict';
import { closeSync, writeSync } from 'node:fs';
import { test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import { socketPair } from '../sys/net/socket-pair.js';
import { BodyReceiver } from './body-receiver.js';

/** No two bytes that are near each other are alike, nor are those at the same place of two chunks. */
const content = Buffer.from(Array.from({ length: 150_000 }, (_, index) => (index * 131 + (index >> 8) * 7) & 0xff));

/** A body in chunks of these sizes by turns. */
function chunked(sizes: readonly (readonly [bytes: number, line?: string])[], end = '0\r\n\r\n'): Buffer {
  const parts: Buffer[] = [];
  for (let at = 0, index = 0; at < content.length; index++) {
    const [bytes, line] = sizes[index % sizes.length] ?? [1];
    const piece = content.subarray(at, at + bytes);
    const ownLine = piece.length === bytes ? line : undefined;
    parts.push(Buffer.from(`${ownLine ?? piece.length.toString(16)}\r\n`), piece, Buffer.from('\r\n'));
    at += piece.length;
  }
  return Buffer.concat([...parts, Buffer.from(end)]);
}

/**
 * Sends a body in portions and receives after each into pieces of memory that have so many bytes, with others around
 * them that must stay as they are.
 */
function received(sent: Buffer, portion: number, room: number, length?: number): Buffer {
  const [near, far] = socketPair();
  try {
    const receiver = new BodyReceiver({ fd: near, length });
    const pieces: Buffer[] = [];
    const memory = Buffer.alloc(room + 64);
    let filledBytes = 0;
    const empty = (): void => {
      pieces.push(Buffer.from(memory.subarray(32, 32 + filledBytes)));
      filledBytes = 0;
    };
    memory.fill('edge');
    const edges = Buffer.from(memory);
    for (let at = 0; at < sent.length;) {
      at += writeSync(far, sent, at, Math.min(portion, sent.length - at));
      while (!receiver.isComplete) {
        const count = receiver.receive(memory.subarray(32 + filledBytes, 32 + room));
        if (count === undefined) break;
        filledBytes += count;
        if (filledBytes === room) empty();
      }
      if (receiver.isComplete) break;
    }
    empty();
    assert.ok(receiver.isComplete, `portions of ${portion}`);
    assert.ok(memory.subarray(0, 32).equals(edges.subarray(0, 32)));
    assert.ok(memory.subarray(32 + room).equals(edges.subarray(32 + room)));
    return Buffer.concat(pieces);
  } finally {
    closeSync(near);
    closeSync(far);
  }
}

test('the body is the same however its chunks are cut and wherever they are received', () => {
  for (const sizes of [
    [[4096]],
    [[5000]],
    [[32_768]],
    [[8192], [8192], [100], [8192]],
    [[8192], [8193]],
    // As long, but not as it was written before.
    [[8192], [8192, '02000'], [8192, '2000;x=y'], [8192]],
    [[4096, '1000;an-extension-that-is-long']],
    [[200_000]],
  ] as const) {
    const body = chunked(sizes);
    for (const portion of [1_000_000, 65_536, 32_775, 8205, 4097, 999]) {
      for (const room of [512, 8192, 65_536, 65_537, 200_000])
        assert.ok(
          received(body, portion, room).equals(content),
          `chunks ${JSON.stringify(sizes)}, portions of ${portion}, pieces of ${room}`,
        );
    }
  }
  assert.ok(received(chunked([[4096]], '0\r\nA: b\r\n\r\nGET / HTTP/1.1'), 10_000, 30_000).equals(content));
  for (const portion of [1_000_000, 999]) assert.ok(received(content, portion, 8192, content.length).equals(content));
});

test('a frame may be cut anywhere', () => {
  const period = 4096 + 8;
  const body = chunked([[4096]]).subarray(0, 9 * period);
  // Whole frames have come before, so that what is missing of one is there from earlier.
  const whole = 4 * period + 100;
  for (const cut of Array.from({ length: 2 * period }, (_, index) => whole + index + 1)) {
    const [near, far] = socketPair();
    const receiver = new BodyReceiver({ fd: near, length: undefined });
    const memory = Buffer.alloc(40_000);
    let filledBytes = 0;
    for (const part of [
      body.subarray(0, 100),
      body.subarray(100, whole),
      body.subarray(whole, cut),
      body.subarray(cut),
    ]) {
      writeSync(far, part);
      for (let count; (count = receiver.receive(memory.subarray(filledBytes))) !== undefined;) filledBytes += count;
    }
    assert.ok(memory.subarray(0, filledBytes).equals(content.subarray(0, 9 * 4096)), `cut at ${cut}`);
    closeSync(near);
    closeSync(far);
  }
});

test('what is no frame is refused, also behind chunks that are alike', () => {
  for (const bad of ['\r\n1000\r', '\r\n-100\r\n', 'xx1000\r\n', '\r\n1000\n\n', '\n\r1000\r\n']) {
    const [near, far] = socketPair();
    const receiver = new BodyReceiver({ fd: near, length: undefined });
    writeSync(far, Buffer.concat([chunked([[4096]]).subarray(0, 2 * 4106 - 2), Buffer.from(bad), content]));
    const memory = Buffer.alloc(100_000);
    assert.throws(
      () => {
        while (receiver.receive(memory) !== undefined);
      },
      (error) => isEngineError(error, 'invalid') && error.code === 'BAD_CHUNKS',
      JSON.stringify(bad),
    );
    closeSync(near);
    closeSync(far);
  }
});

test('a client that leaves within a chunk, or between two, has left', () => {
  for (const sent of [0, 3, 1000, 4102, 4104, 4106, 8206]) {
    const [near, far] = socketPair();
    const receiver = new BodyReceiver({ fd: near, length: undefined });
    writeSync(far, chunked([[4096]]).subarray(0, sent));
    closeSync(far);
    assert.throws(
      () => {
        while (receiver.receive(Buffer.alloc(50_000)) !== undefined);
      },
      (error) => isEngineError(error, 'cancelled'),
      `after ${sent} bytes`,
    );
    closeSync(near);
  }
});
