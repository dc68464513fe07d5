/** Requests that are made to cost much: while they are answered, everybody else is served. */
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { BrowserGuard } from '../../src/http/browser-guard.js';
import { Cleanup } from '../support/cleanup.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { pingWhile } from '../support/ping.js';
import { TestFront } from '../support/test-front.js';

const at = new TestFront();
const cleanup = new Cleanup();
let engine: Engine;
/** Where each attack goes. */
let targets: Record<string, { path: string } | { host: string; port: number }>;

before(async () => {
  const dir = await mkdtemp(join(tmpdir(), 'hostile-'));
  cleanup.add(() => rm(dir, { recursive: true }));
  const scoped = join(dir, 'nothing.sock');
  engine = await Engine.start(
    engined({ args: ['--host', 'tcp://127.0.0.1:0'], file: { sockets: [{ host: `unix://${scoped}`, allow: [] }] } }),
  );
  cleanup.add(() => engine.close());
  // It listens before its log says where.
  const port = await engine.tcpPort();
  targets = { unix: { path: engine.socketPath }, tcp: { host: '127.0.0.1', port }, scoped: { path: scoped } };
});
after(() => cleanup.run());

/** Resolves when the bytes are with the daemon. */
function attack(target: { path: string } | { host: string; port: number }, bytes: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(target);
    socket.once('error', reject);
    socket.resume();
    socket.write(Buffer.from(bytes, 'latin1'), () => {
      socket.on('error', () => undefined);
      resolve(socket);
    });
  });
}

const LINE = 'POST /containers/x/attach?stream=1 HTTP/1.1\r\nHost: x\r\n';
const HEADS: Readonly<Record<string, string>> = {
  'blanks before a control character': `${LINE}X:${' '.repeat(7500)}\x01\r\n\r\n`,
  'blanks between blanks': `${LINE}X: a${'\t '.repeat(3700)}\x01\r\n\r\n`,
  'a head of colons': `${LINE}${':'.repeat(7500)}\r\n\r\n`,
  'many short lines': `${LINE}${Array.from({ length: 900 }, (_, i) => `A${i}: \x01\r\n`).join('')}\r\n`,
  'a target of slashes': `POST ${'/a'.repeat(3500)}/archive HTTP/1.1\r\nHost: x\r\nA:  \x01\r\n\r\n`,
  'an upload': `PUT /containers/x/archive?path=/ HTTP/1.1\r\nHost: x\r\nX:${' '.repeat(7500)}\x01\r\n\r\n`,
  'a media type':
    `POST /containers/create HTTP/1.1\r\nHost: x\r\n` +
    `Content-Type: a/b${'; '.repeat(20_000)}"\r\nContent-Length: 2\r\n\r\n{}`,
  'a media type with a quote that stays open':
    `POST /containers/create HTTP/1.1\r\nHost: x\r\n` +
    `Content-Type: a/b;c="${'\\"'.repeat(20_000)}\r\nContent-Length: 2\r\n\r\n{}`,
  'a host of colons': `GET /version HTTP/1.1\r\nHost: ${':1'.repeat(20_000)}x\r\n\r\n`,
  'an escaped version': `GET /v${'1.'.repeat(20_000)}/version HTTP/1.1\r\nHost: x\r\n\r\n`,
};

for (const [name, head] of Object.entries(HEADS)) {
  test(`${name}: others are served meanwhile, on every kind of socket`, { timeout: 120_000 }, async (t) => {
    for (const [where, target] of Object.entries(targets))
      await t.test(where, async () => {
        const sockets: Socket[] = [];
        try {
          await pingWhile(engine, async () => sockets.push(await attack(target, head)));
        } finally {
          for (const socket of sockets) socket.destroy();
        }
      });
  });
}

test('a request that fails before it has a handler is answered, and the daemon goes on', async () => {
  at.logged.length = 0;
  const guard = new BrowserGuard({
    names: [],
    allowsBrowsers: () => {
      throw new Error('a bug');
    },
  });
  const listener = await at.front.listen({ kind: 'tcp', host: '127.0.0.1', port: 0, guard });
  try {
    const send = (headers: Record<string, string>): Promise<Response> =>
      fetch(`http://127.0.0.1:${listener.port}/_ping`, { headers });
    const failed = await send({ origin: 'http://elsewhere' });
    assert.deepEqual([failed.status, await failed.json()], [500, { message: 'the request could not be served' }]);
    assert.equal((await send({})).status, 200);
    assert.match(at.logged.join('\n'), /a request could not be served/);
  } finally {
    await listener.close(100);
  }
});
