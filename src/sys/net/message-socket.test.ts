import assert from 'node:assert/strict';
import { closeSync, openSync } from 'node:fs';
import { after, test } from 'node:test';
import { closeFd } from '../files/fd.js';
import { MessageSocket } from './message-socket.js';
import { socketPair } from './socket-pair.js';

/** So many messages are more than the kernel keeps between two sockets. */
const MESSAGES = 200;
const FDS = 4;
const text = (at: number): string => `${at} ${'x'.repeat(4000)}`;
const file = openSync('/dev/null', 'r');
after(() => closeSync(file));

function pair(): readonly [MessageSocket, MessageSocket] {
  const [ours, theirs] = socketPair('messages');
  return [new MessageSocket(ours), new MessageSocket(theirs)];
}

async function sendAll(to: MessageSocket): Promise<void> {
  const fds = Array.from({ length: FDS }, () => file);
  for (let at = 0; at < MESSAGES; at++) await to.sendInTime(text(at), fds);
}

test('messages beyond what the kernel keeps wait until the other end has read', async () => {
  const [ours, theirs] = pair();
  const sent = sendAll(ours).finally(() => ours.close());
  sent.catch(() => undefined);
  // Nothing is read in the turn in which all of them would be sent.
  await new Promise((resolve) => setImmediate(resolve));
  for (let at = 0; at < MESSAGES; at++) {
    const message = await theirs.next();
    assert.equal(message?.bytes.toString(), text(at));
    assert.equal(message?.fds.length, FDS);
    for (const fd of message?.fds ?? []) closeFd(fd);
  }
  await sent;
  assert.equal(await theirs.next(), undefined);
  theirs.close();
});

test('nothing waits for an end that is gone', async () => {
  const [ours, theirs] = pair();
  const sent = sendAll(ours);
  setImmediate(() => theirs.close());
  await assert.rejects(sent, ({ code }: { code?: string }) => code === 'EPIPE' || code === 'ECONNRESET');
  ours.close();
});
