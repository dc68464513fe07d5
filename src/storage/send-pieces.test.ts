import assert from 'node:assert/strict';
import { once } from 'node:events';
import { test } from 'node:test';
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { sendPieces, SLOT_BYTES } from './send-pieces.js';

const PIECE = Buffer.alloc(SLOT_BYTES + 1, 'a');

/** Sends a piece of more than a slot. Returns the memory that the other side got, and both ends. */
async function send(): Promise<{
  readonly memory: Uint8Array;
  readonly taker: MessagePort;
  readonly sender: MessagePort;
}> {
  const { port1: sender, port2: taker } = new MessageChannel();
  const begun = once(taker, 'message') as Promise<[SharedArrayBuffer]>;
  const sent = sendPieces(
    {
      read: (take, end) => {
        take(PIECE);
        end(undefined);
      },
      pause: () => undefined,
      resume: () => undefined,
    },
    sender,
  );
  await sent;
  const [memory] = await begun;
  return { memory: new Uint8Array(memory), taker, sender };
}

test('memory is used again when its slots have come back, and not before', async () => {
  const first = await send();
  first.memory.fill(1);
  const second = await send();
  assert.equal(Buffer.compare(second.memory.subarray(0, PIECE.length), PIECE), 0);
  assert.ok(
    first.memory.every((byte) => byte === 1),
    'it is read yet',
  );
  first.taker.postMessage(0, []);
  first.taker.postMessage(0, []);
  first.taker.close();
  // The messages are heard of before.
  await once(first.sender, 'close');
  const third = await send();
  assert.equal(Buffer.compare(Buffer.from(first.memory.subarray(0, PIECE.length)), PIECE), 0, 'it is the same memory');
  second.taker.close();
  third.taker.close();
});
