import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { RequestBody } from './request-body.js';

const idleSource = { pause: () => undefined, resume: () => undefined };

test('a client that goes before its body is read fails the reader that comes later, and nothing else', async () => {
  const body = new RequestBody(idleSource);
  const stream = body.stream();
  body.push(Buffer.from('half'), false);
  body.fail();
  await setImmediate();

  await assert.rejects(async () => {
    for await (const chunk of stream) assert.fail(`a part was taken for the whole: ${String(chunk)}`);
  }, /closed the connection before the end of the request body/);
});

test('a body that stalls is given up when others need the memory, not the other way round', async () => {
  const piece = Buffer.alloc(32 * 1024 * 1024);
  const begin = (): { body: RequestBody; collected: Promise<number> } => {
    const body = new RequestBody(idleSource);
    return { body, collected: body.collect(() => undefined).then(({ length }) => length) };
  };
  const all = Array.from({ length: 8 }, begin);
  for (const { body } of all) body.push(piece, false);
  const [first, second, ...others] = all;
  // It is not the one that stalls any more.
  first?.body.push(Buffer.alloc(1), false);
  const refused = assert.rejects(async () => second?.collected, {
    code: 'OVERLOADED',
    message: 'too many request bodies are being received',
  });
  const late = begin();
  late.body.push(Buffer.alloc(1000), true);
  assert.equal(await late.collected, 1000);
  await refused;
  // Nobody gets what still comes of it.
  second?.body.push(piece, true);
  for (const { body } of [first, ...others].flatMap((one) => one ?? [])) body.push(Buffer.alloc(0), true);
  assert.equal(await first?.collected, piece.length + 1);
  for (const { collected } of others) assert.equal(await collected, piece.length);
});
