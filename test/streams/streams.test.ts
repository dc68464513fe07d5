/**
 * Streams of the API under clients that stall, trickle and vanish. ENGINE_TEST_CYCLES=100000 and
 * ENGINE_TEST_EVENTS=10000 run longer.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { Agent, request } from 'node:http';
import { buffer } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Cleanup } from '../support/cleanup.js';
import { CliSession } from '../support/cli.js';
import { engineOk } from '../support/engine-commands.js';
import {
  acceptedAt,
  connectAndLeave,
  inParallel,
  openDescriptors,
  ownBytes,
  streamRequests,
} from '../support/connect-and-reset.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson, jsonLines, open } from '../support/http.js';
import { tarOf } from '../support/image-builder.js';
import { waitFor } from '../support/wait.js';

/** Clients that come and vanish. The long run: ENGINE_TEST_CYCLES=50000. */
const CYCLES = Number(process.env['ENGINE_TEST_CYCLES'] ?? 400);
/** More than sockets hold and the daemon has in memory: a stopped client is told the rest from the disk. */
const EVENTS = Number(process.env['ENGINE_TEST_EVENTS'] ?? 4000);
const MIB = 1024 * 1024;

const cleanup = new Cleanup();
let engine: Engine;
let image: string;
let port = 0;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup, engined({ args: ['--host', 'tcp://127.0.0.1:0'] })));
  port = await engine.tcpPort();
});
after(() => cleanup.run());

async function container(command: readonly string[], options: object = {}): Promise<string> {
  const { Id } = await callJson<{ Id: string }>(
    engine.socketPath,
    'POST',
    '/containers/create',
    { json: { Image: image, Cmd: command, ...options } },
    201,
  );
  await call(engine.socketPath, 'POST', `/containers/${Id}/start`);
  return Id;
}

const remove = (id: string): Promise<string> => engineOk(engine, ['rm', '-f', id]);
const subscribers = async (): Promise<number> =>
  (await callJson<{ NEventsListener: number }>(engine.socketPath, 'GET', '/info')).NEventsListener;

test(`${CYCLES} clients that come and vanish leave no descriptor, no reader and no memory`, async () => {
  const id = await container(['sh', '-c', 'while true; do echo line; sleep 0.1; done'], { OpenStdin: true });
  const kinds = streamRequests(id);
  const exec = async (): Promise<string> => {
    const { Id } = await callJson<{ Id: string }>(
      engine.socketPath,
      'POST',
      `/containers/${id}/exec`,
      { json: { Cmd: ['true'], AttachStdin: true, AttachStdout: true } },
      201,
    );
    return (
      `POST /exec/${Id}/start HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n` +
      'Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}'
    );
  };
  const cycle = async (turn: number): Promise<void> => {
    const kind = kinds[turn % kinds.length];
    const target = turn % 2 === 0 ? { host: '127.0.0.1', port } : { path: engine.socketPath };
    // A process costs far more than a connection.
    await connectAndLeave(
      target,
      turn % 50 === 7 ? await exec() : String(await kind?.bytes()),
      Math.floor(turn / kinds.length),
    );
  };
  await inParallel(CYCLES / 5, 16, cycle);
  const settled = async (): Promise<boolean> => (await subscribers()) === 0;
  await waitFor('readers of events to be gone', settled);
  await sleep(1000);
  const [fds, memory] = [openDescriptors(engine.pid), ownBytes(engine.pid)];
  await inParallel(CYCLES, 16, cycle);
  await waitFor('readers of events to be gone', settled, 30_000);
  await waitFor(
    () => `descriptors to be back at ${fds}; there are ${openDescriptors(engine.pid)}`,
    () => openDescriptors(engine.pid) <= fds + 2,
    60_000,
    200,
  );
  await waitFor(
    () => `memory to be back near ${memory}; it is ${ownBytes(engine.pid)}`,
    () => ownBytes(engine.pid) < memory + 32 * MIB,
    60_000,
    200,
  );
  // The container noticed nothing, and new clients are served.
  const logs = await open(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1&follow=1&tail=1`);
  await once(logs.message, 'data');
  logs.close();
  assert.doesNotMatch(engine.log, /MaxListeners|level=error/);
  await remove(id);
});

test('clients that leave a container without output are noticed, also where they have ended their input', async () => {
  const { Id: unstarted } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', {
    json: { Image: image },
  });
  const silent = await container(['sh', '-c', 'sleep 1000 & wait'], { OpenStdin: true, StdinOnce: true });
  const json = { Cmd: ['sleep', '1000'], AttachStdout: true };
  const exec = await callJson<{ Id: string }>(engine.socketPath, 'POST', `/containers/${silent}/exec`, { json });
  const upgrade = 'HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n';
  const requests: string[] = [];
  for (const id of [unstarted, silent]) {
    requests.push(`POST /containers/${id}/attach?stream=1&stdout=1 ${upgrade}\r\n`);
    requests.push(
      String(
        await streamRequests(id)
          .find(({ name }) => name === 'attach/ws')
          ?.bytes(),
      ),
    );
  }
  requests.push(`POST /containers/${silent}/attach?stream=1&stdin=1&stdout=1 ${upgrade}\r\n`);
  requests.push(`POST /exec/${exec.Id}/start ${upgrade}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}`);
  await waitFor('earlier connections to be gone', () => acceptedAt(engine.socketPath) === 0);
  for (const bytes of requests) {
    for (const endsInput of [true, false]) {
      if (bytes.includes('/exec/') && endsInput) continue;
      const client = connect({ path: engine.socketPath, allowHalfOpen: true });
      client.write(bytes);
      await once(client, 'data');
      if (endsInput) client.end();
      assert.equal(acceptedAt(engine.socketPath), 1);
      client.destroy();
      await waitFor(`${bytes} to be gone`, () => acceptedAt(engine.socketPath) === 0);
    }
  }
  await remove(silent);
  await remove(unstarted);
});

test('clients that do not read cost a bounded amount each, and get everything when they go on', async () => {
  const lines = 100_000;
  const id = await container([
    'sh',
    '-c',
    `awk 'BEGIN { for (i = 0; i < ${lines}; i++) print "line " i " and some more text to make it longer" }'; ` +
      'sleep 1000',
  ]);
  await waitFor(
    'the output',
    async () =>
      (await call(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1&tail=1`)).text.includes(
        `line ${lines - 1} `,
      ),
    60_000,
    200,
  );
  const before = ownBytes(engine.pid);
  const clients = 30;
  const stalled: Socket[] = [];
  for (let i = 0; i < clients; i++) {
    const socket = connect({ path: engine.socketPath });
    await once(socket, 'connect');
    socket.pause();
    socket.write(`GET /containers/${id}/logs?stdout=1&follow=1 HTTP/1.1\r\nHost: x\r\n\r\n`);
    stalled.push(socket);
  }
  await sleep(3000);
  const perClient = (ownBytes(engine.pid) - before) / clients;
  assert.ok(perClient < 1.5 * MIB, `${Math.round(perClient / 1024)} KiB for each client`);
  const [first, ...others] = stalled;
  for (const socket of others) socket.destroy();
  assert.ok(first !== undefined);
  let tail = '';
  let total = 0;
  first.on('data', (chunk: Buffer) => {
    total += chunk.length;
    tail = (tail + chunk.toString('latin1')).slice(-1000);
  });
  first.resume();
  await waitFor(
    () => `the last line; there are ${total} bytes`,
    () => tail.includes(`line ${lines - 1} `),
    30_000,
  );
  first.destroy();
  await remove(id);
});

test('an attached client that stalls stops the container, not the daemon; nobody loses a byte', async () => {
  const id = await container(['sh', '-c', `read x; awk 'BEGIN { for (i = 0; i < 100000; i++) print "number " i }'`], {
    OpenStdin: true,
  });
  const socket = connect({ path: engine.socketPath });
  await once(socket, 'connect');
  socket.write(
    `POST /containers/${id}/attach?stream=1&stdin=1&stdout=1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n` +
      'Upgrade: tcp\r\n\r\n',
  );
  await once(socket, 'data');
  socket.pause();
  const follow = (): ReturnType<typeof open> =>
    open(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1&follow=1`);
  // The second is late: what it gets has left the hands of the first.
  const [prompt, late] = [await follow(), await follow()];
  const promptly = buffer(prompt.message);
  const before = ownBytes(engine.pid);
  socket.write('\n');
  await sleep(2000);
  assert.ok(ownBytes(engine.pid) - before < 16 * MIB);
  assert.equal((await call(engine.socketPath, 'GET', '/_ping')).status, 200);
  const chunks: Buffer[] = [];
  socket.on('data', (chunk: Buffer) => chunks.push(chunk));
  socket.resume();
  await once(socket, 'end');
  const printed = Array.from({ length: 100_000 }, (_, i) => `number ${i}\n`).join('');
  assert.ok(payloads(Buffer.concat(chunks)) === printed);
  assert.ok(payloads(await promptly) === printed);
  assert.ok(payloads(await buffer(late.message)) === printed);
  const [again, slow] = [await follow(), await follow()];
  assert.ok(payloads(await buffer(again.message)) === printed);
  assert.ok(payloads(await buffer(slow.message)) === printed);
  socket.destroy();
  await remove(id);
});

/** Returns the payload of a stream that has two outputs in frames. */
function payloads(framed: Buffer): string {
  let text = '';
  for (let at = 0; at < framed.length;) {
    const length = framed.readUInt32BE(at + 4);
    text += framed.toString('latin1', at + 8, at + 8 + length);
    at += 8 + length;
  }
  return text;
}

test('uploads that trickle are taken at their pace, and go away with their client', async () => {
  const archive = tarOf([{ path: 'file', content: 'x'.repeat(3000) }]);
  const upload = (): ReturnType<typeof request> =>
    request({
      socketPath: engine.socketPath,
      method: 'POST',
      path: '/images/create?fromSrc=-&repo=trickled',
      headers: { 'Content-Length': archive.length },
      agent: false,
    });
  const slow = upload();
  const reply = once(slow, 'response');
  for (let at = 0; at < archive.length; at += 512) {
    slow.write(archive.subarray(at, at + 512));
    await sleep(100);
  }
  slow.end();
  const [message] = (await reply) as [AsyncIterable<Buffer> & { statusCode: number }];
  assert.equal(message.statusCode, 200);
  for await (const line of jsonLines<{ error?: string }>(message)) assert.equal(line.error, undefined);
  const fds = openDescriptors(engine.pid);
  const broken = Array.from({ length: 50 }, upload);
  for (const outgoing of broken) {
    outgoing.on('error', () => undefined);
    outgoing.write(archive.subarray(0, 512));
  }
  await waitFor('the uploads', () => openDescriptors(engine.pid) >= fds + 50);
  for (const outgoing of broken) outgoing.destroy();
  await waitFor(
    () => `descriptors to be back at ${fds}; there are ${openDescriptors(engine.pid)}`,
    () => openDescriptors(engine.pid) <= fds + 2,
  );
});

/** An event that costs next to nothing. */
function createExec(agent: Agent, id: string): Promise<void> {
  return new Promise((resolve, reject) => {
    const body = '{"Cmd":["true"]}';
    const headers = { 'Content-Type': 'application/json', 'Content-Length': body.length };
    const outgoing = request(
      { socketPath: engine.socketPath, agent, method: 'POST', path: `/containers/${id}/exec`, headers },
      (reply) => {
        reply
          .resume()
          .once('end', () => (reply.statusCode === 201 ? resolve() : reject(new Error(`status ${reply.statusCode}`))));
      },
    );
    outgoing.once('error', reject);
    outgoing.end(body);
  });
}

test('events of the time in which a client is stopped are told later, or the gap is; nobody else notices', async () => {
  const id = await container(['sleep', '1000']);
  const stopped = new CliSession(engine, ['events', '--filter', 'event=exec_create', '--format', '{{.ID}}']);
  const reader = await open(
    engine.socketPath,
    'GET',
    `/events?filters=${encodeURIComponent('{"event":["exec_create"]}')}`,
  );
  let seen = 0;
  const reading = (async () => {
    for await (const line of jsonLines<{ Action: string }>(reader.message))
      if (line.Action.startsWith('exec_create') && ++seen === EVENTS) return;
  })();
  await waitFor('both to listen', async () => (await subscribers()) === 2);
  stopped.kill('SIGSTOP');
  const agent = new Agent({ keepAlive: true, maxSockets: 8 });
  await inParallel(EVENTS, 8, () => createExec(agent, id));
  agent.destroy();
  await reading;
  assert.equal(seen, EVENTS);
  stopped.kill('SIGCONT');
  await waitFor(
    () => `${EVENTS} events; there are ${stopped.stdout.split('\n').length - 1}`,
    () => stopped.stdout.split('\n').length - 1 >= EVENTS,
    60_000,
    200,
  );
  assert.equal(stopped.stdout.split('\n').length - 1, EVENTS);
  stopped.kill('SIGTERM');
  await stopped.ended();
  reader.close();
  await remove(id);
});
