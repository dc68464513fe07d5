import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { once } from 'node:events';
import { writeSync } from 'node:fs';
import { test } from 'node:test';
import { closeFd, peekSocket, takeFromSocket } from '../files/fd.js';
import { acceptFrom, listenOnTcp } from './listen-socket.js';
import { socketPair } from './socket-pair.js';
import { countedBytes, makeRoom, startCounting, stopCounting, writableBytes } from './socket-progress.js';

test('bytes that are read are counted, bytes that only arrive are not', async () => {
  const [unix, other] = socketPair();
  const { fd: listener, port } = await listenOnTcp('127.0.0.1', 0);
  const client = connect(port, '127.0.0.1');
  await once(client, 'connect');
  const tcp = acceptFrom(listener) ?? -1;
  const cases: [fd: number, send: (text: string) => void][] = [
    [unix, (text) => void writeSync(other, text)],
    [tcp, (text) => void client.write(text)],
  ];
  const buffer = Buffer.alloc(100);
  for (const [fd, send] of cases) {
    if (!startCounting(fd)) continue;
    send('0123456789');
    await new Promise((resolve) => setTimeout(resolve, 20));
    assert.equal(countedBytes(fd), 0);
    takeFromSocket(fd, buffer, 4);
    assert.equal(countedBytes(fd), 4);
    send('ab');
    await new Promise((resolve) => setTimeout(resolve, 20));
    takeFromSocket(fd, buffer, 7);
    assert.equal(countedBytes(fd), 11);
    stopCounting(fd);
    assert.equal(peekSocket(fd, buffer), 1);
    assert.equal(buffer.toString('latin1', 0, 1), 'b');
    const writable = writableBytes(fd);
    assert.ok(writable > 16_000, `${writable} bytes`);
    writeSync(fd, 'reply');
    if (fd === unix) assert.ok(writableBytes(fd) < writable, 'nobody has read it');
    const before = writableBytes(fd);
    makeRoom(fd, 1 << 20);
    // Only root may pass the limit of the machine.
    if (process.getuid?.() === 0) assert.equal(writableBytes(fd) > before + (1 << 20), fd === unix);
  }
  client.destroy();
  for (const fd of [unix, other, tcp, listener]) closeFd(fd);
});
