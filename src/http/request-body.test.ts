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
