/** Many clients at once: what they cost, that none gets another's answer, and that reads go on whatever else hangs. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { createFront } from '../../src/http/front.js';
import type { Listener } from '../../src/http/listener.js';
import { route } from '../../src/http/route.js';
import { Cleanup } from '../support/cleanup.js';
import { ownBytes } from '../support/connect-and-reset.js';
import { dockerOk } from '../support/cli.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson, RawConnection } from '../support/http.js';
import { startFaultyServer } from '../support/faulty-registry.js';
import { processesOf } from '../support/leftovers.js';
import { silentLog } from '../support/silent-log.js';
import { waitFor } from '../support/wait.js';
import { SEEDED_IMAGE, withImage } from '../support/seed.js';

const MIB = 1024 * 1024;
/** A half more connections than have a parser each. */
const MANY = 1500;
const cleanup = new Cleanup();

after(() => cleanup.run());

/** Connects in batches: more at once than the backlog takes would have to try again. */
async function connectMany(count: number, open: () => Socket): Promise<Socket[]> {
  const sockets: Socket[] = [];
  while (sockets.length < count) {
    const batch = Array.from({ length: Math.min(250, count - sockets.length) }, () => connected(open));
    sockets.push(...(await Promise.all(batch)));
  }
  return sockets;
}

/** A socket file refuses whoever comes while its backlog is full, so who is faster than the daemon comes again. */
async function connected(open: () => Socket): Promise<Socket> {
  for (;;) {
    const socket = open();
    try {
      await once(socket, 'connect');
      return socket;
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EAGAIN') throw error;
      await sleep(10);
    }
  }
}

/** Sends a request for `/say/<word>` and checks that this very word comes back. */
async function say(socket: Socket, word: string): Promise<void> {
  socket.write(`GET /say/${word} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  await hear(socket, word);
}

async function hear(socket: Socket, word: string): Promise<void> {
  let text = '';
  while (!text.endsWith(`\r\n\r\n<${word}>`)) text += String((await once(socket, 'data'))[0]);
}

describe('more connections than there are parsers', () => {
  let path: string;
  let listeners: Listener[];

  before(async () => {
    const dir = await mkdtemp(join(tmpdir(), 'load-'));
    cleanup.add(() => rm(dir, { recursive: true }));
    path = join(dir, 'engine.sock');
    const front = createFront({
      product: { version: '1', experimental: false },
      logger: silentLog,
      routes: [
        route('GET', '/say/{word}', (x) => x.sendText(200, `<${x.param('word')}>`)),
        route('GET', '/large', (x) => x.sendText(200, 'x'.repeat(MIB))),
        route('POST', '/containers/create', async (x) => x.sendJson(200, await x.json())),
        route('POST', '/ignore', (x) => x.sendText(200, '<ignored>')),
      ],
    });
    listeners = [
      await front.listen({ kind: 'unix', path }),
      await front.listen({ kind: 'tcp', host: '127.0.0.1', port: 0 }),
    ];
    cleanup.add(async () => void (await Promise.all(listeners.map((listener) => listener.close(0)))));
  });

  test('each client gets its own answers, however often its connection was put aside', async () => {
    const port = listeners[1]?.port ?? 0;
    const sockets = [
      ...(await connectMany(MANY / 2, () => connect(path))),
      ...(await connectMany(MANY / 2, () => connect(port, '127.0.0.1'))),
    ];
    for (let round = 0; round < 2; round++) {
      for (let first = 0; first < sockets.length; first += 100) {
        await Promise.all(sockets.slice(first, first + 100).map((socket, i) => say(socket, `r${round}-c${first + i}`)));
      }
    }
    for (const socket of sockets) socket.destroy();
  });

  test('what a client has sent or not yet read survives that others come', async () => {
    const port = listeners[1]?.port ?? 0;
    const open = (i: number): Socket => (i % 2 === 0 ? connect(path) : connect(port, '127.0.0.1'));
    const smuggled = 'GET /say/smuggled HTTP/1.1\r\nHost: localhost\r\n\r\n';
    // Half of the next request right behind the first; a reply that is not read; a body that comes after its reply.
    const halves = await Promise.all(
      Array.from({ length: 40 }, async (_, i) => {
        const socket = open(i);
        socket.write('GET /say/one HTTP/1.1\r\nHost: localhost\r\n\r\n');
        if (i % 4 < 2) await hear(socket, 'one');
        socket.write('GET /say/t');
        if (i % 4 >= 2) await hear(socket, 'one');
        return socket;
      }),
    );
    const readers = Array.from({ length: 20 }, (_, i) => {
      const socket = open(i).pause();
      socket.write('GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n');
      return socket;
    });
    const bodies = await Promise.all(
      Array.from({ length: 20 }, async (_, i) => {
        const socket = open(i);
        socket.write(`POST /ignore HTTP/1.1\r\nHost: localhost\r\nContent-Length: ${smuggled.length}\r\n\r\n`);
        await hear(socket, 'ignored');
        return socket;
      }),
    );
    const crowd = await connectMany(MANY, () => connect(path));
    for (let first = 0; first < crowd.length; first += 100)
      await Promise.all(crowd.slice(first, first + 100).map((socket, i) => say(socket, String(first + i))));

    for (const socket of halves) socket.write('wo HTTP/1.1\r\nHost: localhost\r\n\r\n');
    await Promise.all(halves.map((socket) => hear(socket, 'two')));
    await Promise.all(
      readers.map(async (socket) => {
        let bytes = 0;
        socket.on('data', (data: Buffer) => (bytes += data.length));
        socket.resume();
        await waitFor('the large reply', () => bytes > MIB);
      }),
    );
    // If it were taken for a request of its own, it would be answered.
    for (const socket of bodies) socket.write(smuggled);
    await Promise.all(bodies.map((socket) => say(socket, 'after')));
    for (const socket of [...halves, ...readers, ...bodies, ...crowd]) socket.destroy();
  });

  test('bodies beyond what all may take together get 503 with Retry-After, until there is room', async () => {
    // As long as one may be, from so many that all of them are a fifth more than may be held.
    const size = 4 * MIB;
    const clients = await Promise.all(Array.from({ length: 80 }, () => RawConnection.open(path)));
    for (const client of clients) {
      client.write(
        'POST /containers/create HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n' +
          `Content-Length: ${size}\r\n\r\n"`,
      );
      client.write(Buffer.alloc(size - 2, 'x'));
    }
    const refused = await waitFor('a refusal', async () => {
      const replies = await Promise.all(clients.map((client) => client.readThrough('\r\n\r\n', 300).catch(() => '')));
      return replies.find((reply) => reply !== '');
    });
    assert.match(refused, /^HTTP\/1\.1 503 Service Unavailable\r\n[\s\S]*Retry-After: 1\r\n/);
    for (const client of clients) client.close();
    await waitFor(
      'room',
      async () => (await call(path, 'POST', '/containers/create', { json: 'x'.repeat(MIB) })).status === 200,
    );
  });
});

describe('a daemon', () => {
  let engine: Engine;

  before(async () => {
    engine = await Engine.start(await withImage(engined()));
    cleanup.add(() => engine.close());
  });

  test('10,000 idle connections cost it less than 8 KB each, and are still served', { timeout: 120_000 }, async () => {
    await call(engine.socketPath, 'GET', '/_ping');
    const before = ownBytes(engine.pid);
    const count = 10_000;
    const sockets = await connectMany(count, () => connect(engine.socketPath));
    const ping = async (socket: Socket): Promise<void> => {
      socket.write('GET /_ping HTTP/1.1\r\nHost: localhost\r\n\r\n');
      assert.match(String((await once(socket, 'data'))[0]), /^HTTP\/1\.1 200/);
    };
    for (let first = 0; first < count; first += 250) await Promise.all(sockets.slice(first, first + 250).map(ping));
    const growth = ownBytes(engine.pid) - before;
    assert.ok(growth < count * 8192, `${(growth / MIB).toFixed(1)} MiB for ${count} connections`);
    for (let i = 0; i < count; i += 100) await ping(sockets[i] ?? assert.fail());
    assert.equal((await call(engine.socketPath, 'GET', '/_ping')).text, 'OK');
    for (const socket of sockets) socket.destroy();
  });

  test('connections leave descriptors for everything else', { timeout: 120_000 }, async () => {
    const plain = engined();
    const small = await Engine.start({
      ...plain,
      command: (dir, path) => ['prlimit', '--nofile=400:400', ...plain.command(dir, path)],
    });
    try {
      const first = await RawConnection.open(small.socketPath);
      first.write('GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n');
      await first.readThrough('\r\n\r\nOK');
      const crowd = await connectMany(600, () => connect(small.socketPath).on('error', () => undefined));
      await waitFor('a refusal', () => small.log.includes('nearly all file descriptors are in use'));
      const body = JSON.stringify({ Name: 'made-in-the-crowd' });
      first.write(
        'POST /volumes/create HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n' +
          `Content-Length: ${body.length}\r\n\r\n${body}`,
      );
      assert.match(await first.readThrough('\r\n\r\n'), /^HTTP\/1\.1 201 /);
      for (const socket of crowd) socket.destroy();
      first.close();
      await waitFor(
        'room',
        async () => (await call(small.socketPath, 'GET', '/_ping').catch(() => undefined))?.status === 200,
      );
    } finally {
      await small.close();
    }
  });

  test('reads answer while shims are stopped, ten pulls hang and a prune runs', { timeout: 120_000 }, async () => {
    const ids = [
      await engineOk(engine, ['run', '-d', SEEDED_IMAGE, 'sleep', '1000']),
      await engineOk(engine, ['run', '-d', SEEDED_IMAGE, 'sleep', '1000']),
    ];
    const slow = await startFaultyServer();
    slow.intercept = () => true;
    const shims = processesOf(engine.dir)
      .filter(({ command }) => command.includes('containerd-shim'))
      .map(({ pid }) => pid);
    assert.ok(shims.length >= 2, 'there are shims');
    const pending: RawConnection[] = [];
    const ask = async (method: string, target: string, body = ''): Promise<RawConnection> => {
      const connection = await RawConnection.open(engine.socketPath);
      pending.push(connection);
      const head = `Host: x\r\nContent-Type: application/json\r\nContent-Length: ${body.length}`;
      connection.write(`${method} ${target} HTTP/1.1\r\n${head}\r\n\r\n${body}`);
      return connection;
    };
    const exec = await callJson<{ Id: string }>(engine.socketPath, 'POST', `/containers/${ids[1]}/exec`, {
      json: { Cmd: ['true'] },
    });
    try {
      for (const pid of shims) process.kill(pid, 'SIGSTOP');
      const waiting = [
        await ask('GET', `/containers/${ids[0]}/top`),
        await ask('POST', `/exec/${exec.Id}/start`, '{"Detach":true}'),
        await ask('POST', `/containers/${ids[1]}/kill`),
      ];
      for (let i = 0; i < 10; i++) await ask('POST', `/images/create?fromImage=${slow.host}/slow/image${i}&tag=1`);
      await ask('POST', '/containers/prune');
      await ask('POST', '/images/prune?filters=%7B%22dangling%22%3A%5B%22false%22%5D%7D');
      const replies = waiting.map((connection) => connection.readThrough('\r\n\r\n', 1000).catch(() => 'none'));
      assert.deepEqual(await Promise.all(replies), ['none', 'none', 'none'], 'they wait for a shim');
      for (let round = 0; round < 20; round++) {
        const read = (target: string): Promise<unknown> =>
          Promise.race([
            callJson(engine.socketPath, 'GET', target),
            sleep(10_000).then(() => assert.fail(`GET ${target} hangs`)),
          ]);
        const list = (await read('/containers/json')) as { Id: string }[];
        assert.deepEqual(list.map(({ Id }) => Id).sort(), ids.toSorted());
        await Promise.all([
          read(`/containers/${ids[0]}/json`),
          read('/images/json'),
          read('/info'),
          read('/networks'),
          read('/volumes'),
          read('/version'),
        ]);
      }
      assert.equal(
        await dockerOk(engine, ['ps', '-q', '--no-trunc'], { timeoutMs: 20_000 }).then(
          (text) => text.split('\n').length,
        ),
        2,
      );
    } finally {
      for (const pid of shims) process.kill(pid, 'SIGCONT');
      for (const connection of pending) connection.close();
      await slow.stop();
    }
    await engineOk(engine, ['rm', '-f', ...ids]);
  });
});
