/** A front with routes that do in small what the engine's routes do; for the tests of HTTP itself. */
import { mkdtemp, rm } from 'node:fs/promises';
import type { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { conflict, notFound, notModified } from '../../src/errors/engine-error.js';
import { ThreadTerminator } from '../../src/workers/tls-terminator.js';
import { createFront, type Front } from '../../src/http/front.js';
import type { Listener } from '../../src/http/listener.js';
import { pump } from '../../src/http/response-stream.js';
import { route, type Route } from '../../src/http/route.js';
import { pingRoutes } from '../../src/http/routes/ping.js';
import type { Logger } from '../../src/ports/logger.js';

export const MIB = 1024 * 1024;
export const UPGRADE = 'Host: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n';

interface Running {
  readonly dir: string;
  readonly front: Front;
  readonly unix: Listener;
  readonly tcp: Listener;
}

export class TestFront {
  readonly logged: string[] = [];
  /** Handlers leave here what they saw, by the path's last segment. */
  readonly seen = new Map<string, string>();
  received = 0;
  /** The routes /wait and /work answer after this, or else in a while. */
  waited: Promise<void> | undefined;
  sent = 0;
  readonly logger: Logger = {
    debug: () => undefined,
    info: () => undefined,
    warn: (_fields, message) => void this.logged.push(message),
    error: (fields, message) => void this.logged.push(`${message} ${JSON.stringify(fields)}`),
    child: () => this.logger,
  };
  #started: Running | undefined;

  readonly routes = [
    ...pingRoutes({ swarmState: () => 'inactive' }),
    route('GET', '/images/{name...}/json', (x) =>
      x.sendJson(200, { name: x.param('name'), version: x.version, filter: x.query.text('f') }),
    ),
    route('POST', '/echo', async (x) =>
      x.sendJson(201, { body: await x.json(), header: (x.header('x-registry-auth') ?? '').length }),
    ),
    // It replies before its first wait.
    route('GET', '/at-once', async (x) => x.sendEmpty(204)),
    route('POST', '/optional', async (x) => x.sendJson(200, { body: (await x.optionalJson()) ?? 'none' })),
    route('POST', '/late', async (x) => {
      await sleep(5);
      x.sendJson(200, { header: x.header('x-test'), q: x.query.text('q') });
    }),
    route('POST', '/fail/{kind}', async (x) => {
      await sleep(1);
      if (x.param('kind') === 'not-modified') throw notModified('same');
      if (x.param('kind') === 'bug') throw new TypeError('a bug');
      throw conflict('a < b & "c"', { code: 'TEST' });
    }),
    route('POST', '/silent', () => undefined),
    route('PUT', '/refuse', () => {
      throw notFound('no such place');
    }),
    route('PUT', '/upload', async (x) => {
      this.received = 0;
      const slowly = x.query.flag('slowly');
      for await (const chunk of x.bodyStream()) {
        this.received += (chunk as Buffer).length;
        if (slowly) await sleep(20);
      }
      x.sendJson(200, { received: this.received });
    }),
    route('POST', '/load', async (x) => {
      const progress = x.stream(200, { 'Content-Type': 'application/json' });
      let bytes = 0;
      for await (const chunk of x.bodyStream()) bytes += (chunk as Buffer).length;
      progress.write(`{"bytes":${bytes}}\n`);
      progress.end();
    }),
    route('GET', '/flood', async (x) => {
      const stream = x.stream(200, { 'Content-Type': 'application/octet-stream' });
      this.sent = 0;
      await pump(this.#pieces(), stream);
    }),
    route('GET', '/flood-blindly', (x) => {
      const stream = x.stream(200);
      stream.onClose(() => this.seen.set('flood-blindly', 'closed'));
      for (let i = 0; i < 1000; i++) stream.write(Buffer.alloc(64 * 1024));
    }),
    route('POST', '/wait', async (x) => {
      const stream = x.stream(200, { 'Content-Type': 'application/json' });
      x.signal.addEventListener('abort', () => this.seen.set('wait', 'aborted'));
      await stream.ready();
      await Promise.race([this.waited ?? sleep(300), new Promise<void>((resolve) => stream.onClose(resolve))]);
      stream.write('{"StatusCode":0}\n');
      stream.end();
    }),
    route('GET', '/endless', async (x) => {
      const stream = x.stream(200, {}, { isEndless: true });
      await new Promise<void>((resolve) => stream.onClose(resolve));
    }),
    route('POST', '/work', async (x) => {
      await (this.waited ?? sleep(300));
      x.sendEmpty(204);
    }),
    route(
      'GET',
      '/hang',
      async (x) => {
        x.onClose(() => {
          throw new Error('a bug in a callback');
        });
        await new Promise<void>((resolve) => x.onClose(resolve));
        this.seen.set('hang', x.signal.aborted ? 'aborted' : 'replied');
      },
      { waitsForOthers: true },
    ),
    route(
      'POST',
      '/containers/{id...}/attach',
      async (x) => {
        await sleep(5);
        if (x.param('id') === 'missing') {
          x.sendHijackError(notFound('No such container: missing'));
          return;
        }
        echo(await x.hijack({ contentType: 'application/vnd.docker.multiplexed-stream', commonHeaders: false }));
      },
      { hijack: 'after-head' },
    ),
    route(
      'POST',
      '/exec/{id...}/start',
      async (x) => {
        const body = await x.json<{ Detach?: boolean }>();
        if (x.param('id') === 'paused') throw conflict('paused');
        if (body.Detach === true) x.sendEmpty(200);
        else echo(await x.hijack({ contentType: 'application/vnd.docker.raw-stream', commonHeaders: true }));
      },
      { hijack: 'after-body' },
    ),
  ];

  /**
   * To be called once, at the top of a test file: it listens before the tests and is closed after them.
   * @param further routes besides those of this file.
   */
  constructor(further: readonly Route[] = []) {
    before(async () => {
      const dir = await mkdtemp(join(tmpdir(), 'front-'));
      const front = createFront({
        routes: [...this.routes, ...further],
        product: { version: '28.5.2', experimental: false },
        logger: this.logger,
        terminateTls: (rules, serve) => new ThreadTerminator(rules, this.logger, serve),
      });
      const unix = await front.listen({ kind: 'unix', path: join(dir, 'engine.sock'), gid: 12345 });
      this.#started = { dir, front, unix, tcp: await front.listen({ kind: 'tcp', host: '127.0.0.1', port: 0 }) };
    });
    after(async () => {
      await Promise.all([this.#running.unix.close(1000), this.#running.tcp.close(1000)]);
      await rm(this.dir, { recursive: true });
    });
  }

  get front(): Front {
    return this.#running.front;
  }

  /** A directory for further sockets. */
  get dir(): string {
    return this.#running.dir;
  }

  /** The socket. */
  get path(): string {
    return join(this.dir, 'engine.sock');
  }

  /** Requests over the socket that are not over. */
  inFlight(): ReturnType<Listener['inFlight']> {
    return this.#running.unix.inFlight();
  }

  get port(): number {
    return this.#running.tcp.port ?? 0;
  }

  get #running(): Running {
    if (!this.#started) throw new Error('the front listens while tests run');
    return this.#started;
  }

  async *#pieces(): AsyncGenerator<Buffer> {
    const piece = Buffer.alloc(64 * 1024, 'x');
    for (; this.sent < 200 * MIB; this.sent += piece.length) yield await Promise.resolve(piece);
  }
}

/** Sends back what comes, and after the client's end, late, a last word. */
function echo(socket: Socket): void {
  socket.on('data', (chunk: Buffer) => socket.write(`<${chunk.toString()}>`));
  socket.on('end', () => setTimeout(() => socket.end('bye'), 50));
}
