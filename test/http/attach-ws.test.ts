/** Attaching over a websocket, as dashboards do. Passes against the original too, but for what it lacks. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call, callJson, RawConnection } from '../support/http.js';
import { waitFor } from '../support/wait.js';
import { WebSocketClient } from '../support/websocket-client.js';

const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
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
  return Id;
}

const start = (id: string): Promise<unknown> => call(engine.socketPath, 'POST', `/containers/${id}/start`);
const remove = (id: string): Promise<string> => engineOk(engine, ['rm', '-f', id]);
const attach = (id: string, query: string, version = '/v1.41', headers = {}): Promise<WebSocketClient> =>
  WebSocketClient.open(engine.socketPath, `${version}/containers/${id}/attach/ws?${query}`, headers);
const shows = (client: WebSocketClient, pattern: RegExp): Promise<unknown> =>
  waitFor(
    () => `${pattern} in ${JSON.stringify(client.text)}`,
    () => pattern.test(client.text),
  );

test('input and output go through, in binary frames or, for old clients, in text', async () => {
  const id = await container(['cat'], { OpenStdin: true });
  await start(id);
  for (const [version, opcode] of [
    ['/v1.41', 2],
    ['/v1.27', 1],
    ['', 2],
  ] as const) {
    const client = await attach(id, 'stream=1&stdin=1&stdout=1&stderr=1', version);
    assert.match(client.head, /^HTTP\/1\.1 101 Switching Protocols\r\n/);
    assert.match(client.head, /\r\nUpgrade: websocket(\r\n|$)/i);
    assert.match(client.head, /\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK\+xOo=(\r\n|$)/);
    client.send(opcode, 'typed\n');
    await shows(client, /^typed\n$/);
    assert.equal(client.frames[0]?.opcode, opcode);
    client.destroy();
  }
  await remove(id);
});

test('a long message, one in fragments, and pings between them', async () => {
  const id = await container(['cat'], { OpenStdin: true });
  await start(id);
  const client = await attach(id, 'stream=1&stdin=1&stdout=1');
  const long = `${'0123456789'.repeat(50_000)}\n`;
  client.send(2, long);
  await waitFor('all of it', () => client.text.length === long.length, 30_000);
  assert.equal(client.text, long);
  client.send(2, 'one ', false);
  client.send(9, 'are you there');
  client.send(0, 'two\n');
  await shows(client, /one two\n$/);
  await waitFor('the pong', () =>
    client.frames.some(({ opcode, payload }) => opcode === 10 && payload.toString() === 'are you there'),
  );
  client.destroy();
  await remove(id);
});

test('both outputs come unframed, and the end of the container is a close', async () => {
  const id = await container(['sh', '-c', 'read x; echo out; echo err >&2'], { OpenStdin: true });
  await start(id);
  const client = await attach(id, 'stream=1&stdin=1&stdout=1&stderr=1');
  client.send(2, 'go\n');
  await waitFor('the end', () => client.isEnded);
  assert.deepEqual(client.text.split('\n').toSorted(), ['', 'err', 'out']);
  assert.equal(client.frames.at(-1)?.opcode, 8);
  client.destroy();
  await remove(id);
});

test('what was logged comes first with logs=1, and alone without stream=1', async () => {
  const id = await container(['sh', '-c', 'echo before; read x; echo after'], { OpenStdin: true });
  await start(id);
  await waitFor('the first line', async () => (await engineOk(engine, ['logs', id])) === 'before');
  const client = await attach(id, 'logs=1&stream=1&stdout=1&stdin=1');
  await shows(client, /^before\n$/);
  client.send(2, '\n');
  await shows(client, /^before\nafter\n$/);
  client.destroy();
  const past = await attach(id, 'logs=1&stdout=1');
  await waitFor('the end', () => past.isEnded);
  assert.match(past.text, /^before\n/);
  past.destroy();
  await remove(id);
});

test('detach keys end the attachment, not the container', async () => {
  const id = await container(['sh'], { OpenStdin: true, Tty: true });
  await start(id);
  const client = await attach(id, `stream=1&stdin=1&stdout=1&detachKeys=${encodeURIComponent('ctrl-a,x')}`);
  client.send(2, 'echo hel""lo\n');
  await shows(client, /hello/);
  client.send(2, '\x01x');
  await waitFor('the end', () => client.isEnded);
  client.destroy();
  assert.equal(
    (await callJson<{ State: { Running: boolean } }>(engine.socketPath, 'GET', `/containers/${id}/json`)).State.Running,
    true,
  );
  await remove(id);
});

test('a close of the client is the end of input of a container that has one client only', async () => {
  const id = await container(['sh', '-c', 'cat; echo ended > /tmp/x; sleep 1000'], {
    OpenStdin: true,
    StdinOnce: true,
  });
  await start(id);
  const client = await attach(id, 'stream=1&stdin=1&stdout=1');
  client.send(2, 'last\n');
  await shows(client, /last\n/);
  client.send(8, Buffer.from([3, 232]));
  // The original answers only when the container has ended.
  if (!isOriginal()) await waitFor('the close to be answered', () => client.isEnded);
  await waitFor(
    'cat to end',
    async () => (await engineOk(engine, ['exec', id, 'sh', '-c', 'cat /tmp/x || true'])) === 'ended',
  );
  client.destroy();
  await remove(id);
});

test('requests that are no proper upgrade, and containers that cannot be attached to, get an error', async () => {
  const id = await container(['sleep', '1000']);
  const wrong: Record<string, string | undefined>[] = [
    { Upgrade: undefined },
    { Upgrade: 'h2c' },
    { Connection: 'close' },
    { 'Sec-WebSocket-Version': '8' },
    { 'Sec-WebSocket-Key': undefined },
  ];
  for (const headers of wrong) {
    const client = await attach(id, 'stream=1', '/v1.41', headers);
    assert.match(client.head, /^HTTP\/1\.1 400 /, JSON.stringify(headers));
    client.destroy();
  }
  const absent = await attach('absent', 'stream=1');
  assert.match(absent.head, /^HTTP\/1\.1 404 /);
  await waitFor('the message', () => absent.body.includes('No such container: absent'));
  absent.destroy();
  await remove(id);
});

test(
  'a client that breaks the protocol is told so and cut off; the container goes on',
  { skip: isOriginal() },
  async () => {
    const id = await container(['cat'], { OpenStdin: true });
    await start(id);
    for (const bytes of [
      Buffer.from([0x82, 1, 65]),
      Buffer.from([0xf2, 0x81, 0, 0, 0, 0, 65]),
      Buffer.from([0x83, 0x80, 0, 0, 0, 0]),
      Buffer.from([0x82, 0xff, 255, 255, 255, 255, 255, 255, 255, 255]),
    ]) {
      const client = await attach(id, 'stream=1&stdin=1&stdout=1');
      client.raw(bytes);
      await waitFor('the end', () => client.isEnded);
      assert.deepEqual(client.frames.at(-1), { opcode: 8, payload: Buffer.from([0x03, 0xea]) });
      client.destroy();
    }
    const client = await attach(id, 'stream=1&stdin=1&stdout=1');
    client.send(2, 'still here\n');
    await shows(client, /^still here\n$/);
    client.destroy();
    await remove(id);
  },
);

function isOriginal(): boolean {
  return process.env['ENGINE_UNDER_TEST'] === 'dockerd';
}

test('attach over plain HTTP tells its errors inside the stream', async () => {
  const id = await container(['sleep', '1000']);
  await start(id);
  await call(engine.socketPath, 'POST', `/containers/${id}/pause`);
  const cases: [path: string, status: number, message: RegExp][] = [
    ['/containers/absent/attach?stream=1', 404, /No such container: absent\r\n$/],
    [`/containers/${id}/attach?stream=1`, 409, /is paused, unpause the container before attach\r\n$/],
    [`/containers/${id}/attach?stream=1&detachKeys=nonsense`, 400, /^Invalid detach keys \(nonsense\) provided\r\n$/m],
  ];
  for (const [path, status, message] of cases) {
    for (const upgrade of ['', 'Connection: Upgrade\r\nUpgrade: tcp\r\n']) {
      const connection = await RawConnection.open(engine.socketPath);
      connection.write(`POST ${path} HTTP/1.1\r\nHost: x\r\n${upgrade}\r\n`);
      const reply = (await connection.readToEnd()).toString();
      assert.match(
        reply,
        new RegExp(
          `^HTTP/1\\.1 ${status} [A-Za-z ]+\\r\\nContent-Type: application/vnd\\.docker\\.raw-stream\\r\\n\\r\\n`,
        ),
      );
      assert.match(reply, message);
      connection.close();
    }
  }
  await call(engine.socketPath, 'POST', `/containers/${id}/unpause`);
  await remove(id);
});
