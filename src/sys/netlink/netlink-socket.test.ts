import assert from 'node:assert/strict';
import { closeSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { NETLINK_ROUTE, NetlinkSocket } from './netlink-socket.js';

test('a socket that was closed sends nothing into the file that has its number now', async () => {
  const path = join(tmpdir(), `netlink-${process.pid}`);
  const socket = new NetlinkSocket(NETLINK_ROUTE);
  const { fd } = socket;
  socket.close();
  await new Promise(setImmediate);
  const opened: number[] = [];
  try {
    do opened.push(openSync(path, 'w'));
    while (!opened.includes(fd) && opened.length < 100);
    assert.ok(opened.includes(fd), 'the number is in use again');
    const message = { type: 18, flags: 1, body: Buffer.alloc(16) };
    await assert.rejects(socket.request([message]), { code: 'EBADF' });
    assert.throws(() => socket.requestNow([message]), { code: 'EBADF' });
    assert.equal(readFileSync(path).length, 0);
  } finally {
    for (const one of opened) closeSync(one);
    rmSync(path, { force: true });
  }
});
