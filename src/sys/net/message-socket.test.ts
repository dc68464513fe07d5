import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { closeSync, openSync } from 'node:fs';
import { after, test } from 'node:test';
import { promisify } from 'node:util';
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

test('an ordinary user, who may have few descriptors under way, waits until the other end has taken some', async () => {
  const from = (name: string): string => JSON.stringify(new URL(name, import.meta.url));
  const script = `
    import { openSync } from 'node:fs';
    import { closeFd } from ${from('../files/fd.js')};
    import { MessageSocket } from ${from('./message-socket.js')};
    import { socketPair } from ${from('./socket-pair.js')};
    const [ours, theirs] = socketPair('messages').map((fd) => new MessageSocket(fd));
    const file = openSync('/dev/null', 'r');
    process.setgid(61234);
    process.setuid(61234);
    const sent = (async () => {
      for (let i = 0; i < 50; i++) await ours.sendInTime('x', [file, file, file, file]);
    })().finally(() => ours.close());
    sent.catch(() => undefined);
    await new Promise((resolve) => setImmediate(resolve));
    let count = 0;
    for (;;) {
      const message = await theirs.next();
      if (message === undefined) break;
      for (const fd of message.fds) closeFd(fd);
      count += message.fds.length;
    }
    await sent;
    console.log(count);`;
  const node = [process.execPath, '--input-type=module', '--eval', script];
  const { stdout } = await promisify(execFile)('prlimit', ['--nofile=64', ...node]);
  assert.equal(stdout, '200\n');
});

test('nothing waits for an end that is gone', async () => {
  const [ours, theirs] = pair();
  const sent = sendAll(ours);
  setImmediate(() => theirs.close());
  await assert.rejects(sent, ({ code }: { code?: string }) => code === 'EPIPE' || code === 'ECONNRESET');
  ours.close();
});
