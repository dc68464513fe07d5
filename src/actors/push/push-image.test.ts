import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseReference } from '../../images/reference.js';
import { pushImage } from './push-image.js';

test('a push that is given up in the turn in which it is joined does not wait for the registry', async () => {
  const abort = new AbortController();
  let leave = (): void => assert.fail('nobody reads');
  const over = new Promise<IteratorResult<string>>((resolve) => (leave = () => resolve({ done: true, value: '' })));
  const lines: AsyncIterableIterator<string> = {
    next: () => over,
    return: () => (leave(), over),
    [Symbol.asyncIterator]: () => lines,
  };
  const pushes = { push: () => (abort.abort(), Promise.resolve(lines)) };
  const request = { reference: parseReference('web'), credentials: undefined, platform: undefined };
  await assert.rejects(pushImage(pushes, request, abort.signal), /the push was given up/);
});
