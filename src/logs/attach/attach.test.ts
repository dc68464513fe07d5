import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { AttachHub } from './attach-hub.js';
import { DetachScanner, parseDetachKeys } from './detach-keys.js';
import { seededRandom } from '../log-fixture.js';
import { FrameDecoder, frame } from './stdcopy.js';

/** Both ends of a connection. */
async function socketPair(t: TestContext): Promise<[ours: Socket, clients: Socket]> {
  const dir = await mkdtemp(join(tmpdir(), 'attach-'));
  const server = createServer({ allowHalfOpen: true }).listen(join(dir, 's'));
  await once(server, 'listening');
  const client = connect({ path: join(dir, 's'), allowHalfOpen: true });
  const [ours] = (await once(server, 'connection')) as [Socket];
  t.after(async () => {
    ours.destroy();
    client.destroy();
    server.close();
    await rm(dir, { recursive: true, force: true });
  });
  return [ours, client];
}

test('every attached client gets every byte that it wants, then the end', async (t) => {
  const hub = new AttachHub();
  const [[a, clientA], [b, clientB]] = [await socketPair(t), await socketPair(t)];
  hub.subscribe({ stdout: true, stderr: true, multiplexed: true }, a);
  hub.subscribe({ stdout: true, stderr: false, multiplexed: false }, b);
  const random = seededRandom(5);
  const sent = { stdout: [] as Buffer[], stderr: [] as Buffer[] };
  const gotA = clientA.toArray() as Promise<Buffer[]>;
  const gotB = clientB.toArray() as Promise<Buffer[]>;
  for (let i = 0; i < 200; i++) {
    const stream = random() < 0.5 ? 'stdout' : 'stderr';
    const chunk = Buffer.alloc(Math.floor(random() * 65_536), i);
    sent[stream].push(chunk);
    if (!hub.write(stream, chunk)) await new Promise<void>((resolve) => hub.onceDrained(resolve));
  }
  hub.end();
  const decoder = new FrameDecoder();
  const frames = (await gotA).flatMap((piece) => decoder.push(piece));
  assert.ok(decoder.isAtBoundary);
  for (const stream of ['stdout', 'stderr'] as const) {
    const payload = Buffer.concat(frames.filter((each) => each.stream === stream).map((each) => each.payload));
    assert.ok(payload.equals(Buffer.concat(sent[stream])), stream);
  }
  assert.ok(frames.every(({ payload }) => payload.length <= 32 << 10));
  assert.ok(Buffer.concat(await gotB).equals(Buffer.concat(sent.stdout)));
});

test('a client that does not read holds the output up within bounds, until it reads or leaves', async (t) => {
  const hub = new AttachHub();
  const [ours, client] = await socketPair(t);
  hub.subscribe({ stdout: true, stderr: true, multiplexed: false }, ours);
  const chunk = Buffer.alloc(65_536, 1);
  let accepted = 1;
  while (hub.write('stdout', chunk)) accepted++;
  assert.ok(accepted * chunk.length < 4 << 20, String(accepted));
  let isDrained = false;
  hub.onceDrained(() => (isDrained = true));
  await setImmediate();
  assert.equal(isDrained, false);
  let received = 0;
  client.on('data', (piece: Buffer) => (received += piece.length));
  await new Promise<void>((resolve) => hub.onceDrained(resolve));
  assert.ok(isDrained);
  while (hub.write('stdout', chunk)) accepted++;
  accepted++;
  client.pause();
  const left = new Promise<void>((resolve) => hub.onceDrained(resolve));
  client.destroy();
  ours.destroy();
  await left;
  assert.equal(hub.size, 0);
  assert.ok(received > 0 && received <= accepted * chunk.length);
  assert.equal(hub.write('stdout', chunk), true);
});

test('detach keys are parsed as names and characters', () => {
  const refuse = (text: string): Error => new Error(text);
  const parse = (text: string | undefined): number[] => [...parseDetachKeys(text, refuse)];
  assert.deepEqual(parse(undefined), [16, 17]);
  assert.deepEqual(parse(''), [16, 17]);
  assert.deepEqual(parse('ctrl-a,b'), [1, 98]);
  assert.deepEqual(parse('ctrl-@,ctrl-[,ctrl-\\,ctrl-],ctrl-^,ctrl-_,DEL'), [0, 27, 28, 29, 30, 31, 127]);
  for (const bad of ['ctrl-', 'ctrl-1', 'a,,b', 'ab', 'ctrl-aa', ','])
    assert.throws(() => parse(bad), { message: bad });
});

test('the detach sequence is found across chunks and swallowed, all else passes unchanged', () => {
  const type = (keys: string, ...chunks: string[]): [string, boolean] => {
    const scanner = new DetachScanner(Buffer.from(keys));
    let passed = '';
    for (const chunk of chunks) {
      const { data, detached } = scanner.push(Buffer.from(chunk));
      passed += data.toString();
      if (detached) return [passed, true];
    }
    return [passed, false];
  };
  assert.deepEqual(type('pq', 'hello'), ['hello', false]);
  assert.deepEqual(type('pq', 'hellopqx'), ['hello', true]);
  assert.deepEqual(type('pq', 'a', 'p', 'q'), ['a', true]);
  assert.deepEqual(type('pq', 'p', 'x', 'pp', 'q'), ['pxp', true]);
  assert.deepEqual(type('aab', 'aaa', 'b'), ['a', true]);
  assert.deepEqual(type('aab', 'aac'), ['aac', false]);
  assert.deepEqual(type('pq', 'xp'), ['x', false]);
});

test('frames of any size survive any cut', () => {
  const sent = [
    frame('stdout', Buffer.alloc(0)),
    frame('stderr', Buffer.alloc(100_000, 7)),
    frame('systemerr', Buffer.from('Error\n')),
  ];
  const bytes = Buffer.concat(sent.flat());
  const random = seededRandom(9);
  const decoder = new FrameDecoder();
  const frames = [];
  for (let at = 0; at < bytes.length;) {
    const size = 1 + Math.floor(random() ** 6 * 50_000);
    frames.push(...decoder.push(bytes.subarray(at, at + size)));
    at += size;
  }
  assert.deepEqual(
    frames.map(({ stream, payload }) => [stream, payload.length]),
    [
      ['stdout', 0],
      ['stderr', 100_000],
      ['systemerr', 6],
    ],
  );
  assert.throws(() => decoder.push(Buffer.from('not a frame')), /no frame begins/);
});
