import assert from 'node:assert/strict';
import { test } from 'node:test';
import { withinRoom } from './disk-room.js';

test('work that has used up the disk says so, and not that it was given up', async () => {
  const { signal } = new AbortController();
  // A file system without blocks is a full one.
  const working = withinRoom('/proc', signal, async (abort) => {
    abort.throwIfAborted();
    await new Promise((_, reject) => {
      abort.addEventListener('abort', () => reject(new Error('context canceled')));
    });
  });
  await assert.rejects(working, /no space left on device/);
  const given = withinRoom('/proc', signal, () => Promise.reject(new Error('context canceled')));
  await assert.rejects(given, /no space left on device/);
  await assert.rejects(
    withinRoom('/', signal, () => Promise.reject(new Error('its own'))),
    /its own/,
  );
});
