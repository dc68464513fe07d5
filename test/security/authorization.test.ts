/** Authorization plugins: a plugin process of the test decides what a real daemon serves. */
import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { existsSync, readFileSync, rmSync } from 'node:fs';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { request as httpsRequest } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { deferred } from '../../src/supervisor/deferred.js';
import { AuthorizationPlugin, type Behaviour, type Question } from '../support/authorization-plugin.js';
import type { SeededRegistry } from '../support/busybox-image.js';
import { Authority, type Certificate } from '../support/certificates.js';
import { Cleanup } from '../support/cleanup.js';
import { CliSession, docker, dockerOk } from '../support/cli.js';
import { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { tarOf } from '../support/image-builder.js';
import { engined } from '../support/engined.js';
import { call, callJson, open, RawConnection } from '../support/http.js';
import { waitFor } from '../support/wait.js';

const MIB = 1024 * 1024;
const cleanup = new Cleanup();
let engine: Engine;
let registry: SeededRegistry;
let plugin: AuthorizationPlugin;
let second: AuthorizationPlugin;

before(async () => {
  ({ engine, registry } = await startEngineWithImage(cleanup, engined()));
  plugin = await AuthorizationPlugin.start(join(engine.dir, 'first.sock'));
  cleanup.add(() => plugin.stop());
  second = await AuthorizationPlugin.start(join(engine.dir, 'second.sock'));
  cleanup.add(() => second.stop());
  await use(plugin);
});
after(() => cleanup.run());
afterEach(async () => {
  if (plugin.isRunning) await plugin.set({});
  await second.set({});
});

/** Through the file and SIGHUP: a plugin that denies everything cannot lock the operator out. */
async function use(...plugins: readonly AuthorizationPlugin[]): Promise<void> {
  const ids = plugins.map(({ socketPath }) => socketPath);
  await configure({ 'authorization-plugins': ids });
}

async function configure(config: unknown): Promise<void> {
  const reloads = (): number => engine.log.split('configuration reloaded').length;
  const before = reloads();
  await writeFile(join(engine.dir, 'daemon.json'), JSON.stringify(config));
  process.kill(engine.pid, 'SIGHUP');
  await waitFor('the reload', () => reloads() > before);
}

const create = (body: unknown, headers: Record<string, string> = {}) =>
  call(engine.socketPath, 'POST', '/v1.41/containers/create', { json: body, headers });
const denial = (by: AuthorizationPlugin): string =>
  `{"message":"authorization denied by plugin ${by.socketPath}: not for you"}\n`;

async function asked(by = plugin): Promise<readonly Pick<Question, 'phase' | 'fields'>[]> {
  return (await by.questions()).map(({ phase, fields }) => ({ phase, fields }));
}

test('a plugin is asked about the request and about its reply, in the fields of the protocol', async () => {
  await plugin.set({});
  const body = { Image: registry.reference, Cmd: ['true'] };
  const reply = await create(body, { 'X-Registry-Auth': 'c2VjcmV0', 'X-Custom': 'seen' });
  assert.equal(reply.status, 201);
  const [requested, replied, ...rest] = await plugin.questions();
  assert.equal(rest.length, 0);
  assert.equal(requested?.phase, 'request');
  assert.equal(requested.headers['accept'], 'application/vnd.docker.plugins.v1.2+json');
  const { RequestHeaders, ...fields } = requested.fields;
  assert.deepEqual(fields, {
    RequestMethod: 'POST',
    RequestUri: '/v1.41/containers/create',
    RequestBody: JSON.stringify(body),
  });
  assert.deepEqual(RequestHeaders, {
    'Content-Type': 'application/json',
    'Content-Length': String(JSON.stringify(body).length),
    'X-Custom': 'seen',
    Connection: 'close',
  });
  assert.equal(replied?.phase, 'reply');
  assert.equal(replied.fields['ResponseStatusCode'], 201);
  assert.equal(replied.fields['ResponseBody'], reply.text);
  assert.equal((replied.fields['ResponseHeaders'] as Record<string, string>)['Content-Type'], 'application/json');
  assert.equal(replied.fields['RequestUri'], '/v1.41/containers/create');
});

test('requests are denied by path, by method and by body, and have no effect', async () => {
  await plugin.set({
    deny: [{ uri: '^(/v[0-9.]+)?/images/json' }, { method: '^DELETE$' }, { body: '"Privileged":\\s*true' }],
  });
  const images = await call(engine.socketPath, 'GET', '/images/json');
  assert.deepEqual([images.status, images.text], [403, denial(plugin)]);
  assert.equal(images.headers['content-type'], 'application/json');
  assert.equal(
    (await create({ Image: registry.reference, HostConfig: { Privileged: true } }, { 'X-N': '1' })).text,
    denial(plugin),
  );
  const name = 'kept-by-denial';
  await callJson(
    engine.socketPath,
    'POST',
    `/containers/create?name=${name}`,
    { json: { Image: registry.reference } },
    201,
  );
  assert.equal((await call(engine.socketPath, 'DELETE', `/containers/${name}`)).status, 403);
  assert.equal((await call(engine.socketPath, 'GET', `/containers/${name}/json`)).status, 200);
  const cli = await docker(engine, ['rm', name]);
  assert.match(cli.stderr, /authorization denied by plugin .*: not for you/);
});

test('replies are denied, whole ones and streams, before any of them is sent', async () => {
  await plugin.set({
    deny: [
      { phase: 'reply', uri: '/info' },
      { phase: 'reply', uri: '/logs' },
      { phase: 'reply', replyBody: 'No such container' },
      { phase: 'reply', uri: '/attach' },
    ],
  });
  assert.equal((await call(engine.socketPath, 'GET', '/info')).text, denial(plugin));
  assert.equal((await call(engine.socketPath, 'GET', '/version')).status, 200);
  const absent = await call(engine.socketPath, 'GET', '/containers/absent/json');
  assert.deepEqual([absent.status, absent.text], [403, denial(plugin)]);
  const id = (await dockerOk(engine, ['run', '-d', registry.reference, 'sh', '-c', 'echo secret; sleep 1000'])).trim();
  const logs = await call(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1&follow=1`);
  assert.deepEqual([logs.status, logs.text], [403, denial(plugin)]);
  const connection = await RawConnection.open(engine.socketPath);
  connection.write(
    `POST /containers/${id}/attach?stream=1&stdout=1&logs=1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n`,
  );
  const attached = (await connection.readToEnd()).toString();
  assert.match(attached, /^HTTP\/1\.1 403 Forbidden/);
  assert.doesNotMatch(attached, /secret/);
  connection.close();
  await dockerOk(engine, ['rm', '-f', id]);
});

test('streams and hijacked connections work when they are allowed', async () => {
  await plugin.set({});
  assert.equal(await dockerOk(engine, ['run', '--rm', registry.reference, 'echo', 'through']), 'through');
  const id = (await dockerOk(engine, ['run', '-d', registry.reference, 'sh', '-c', 'echo one; sleep 1000'])).trim();
  const session = new CliSession(engine, ['exec', '-i', id, 'cat']);
  session.write('typed\n');
  await waitFor('the echo', () => session.stdout === 'typed\n');
  session.end();
  await session.ended();
  const logs = await open(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1&follow=1`);
  const first: IteratorResult<Buffer> = await logs.message[Symbol.asyncIterator]().next();
  assert.match(String(first.value), /one\n/);
  logs.close();
  const execs = (await asked()).filter(
    ({ phase, fields }) => phase === 'request' && /exec\/[^/]+\/start/.test(String(fields['RequestUri'])),
  );
  assert.match(String(execs[0]?.fields['RequestBody']), /"Detach":false/);
  const replies = (await asked()).filter(
    ({ phase, fields }) => phase === 'reply' && /\/attach/.test(String(fields['RequestUri'])),
  );
  assert.equal(replies[0]?.fields['ResponseStatusCode'], 101);
  await dockerOk(engine, ['rm', '-f', id]);
});

test('the body that a handler gets is the one that was shown, however it is framed', async () => {
  const body = JSON.stringify({ Image: registry.reference, HostConfig: { Privileged: true } });
  const head = 'POST /containers/create HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\n';
  const chunk = (text: string): string => `${text.length.toString(16)}\r\n${text}\r\n`;
  const framings: Readonly<Record<string, string>> = {
    plain: `${head}Content-Length: ${body.length}\r\n\r\n${body}`,
    charset: `${head.replace('json\r', 'json; charset=utf-8\r')}Content-Length: ${body.length}\r\n\r\n${body}`,
    chunked: `${head}Transfer-Encoding: chunked\r\n\r\n${chunk(body)}0\r\n\r\n`,
    pieces: `${head}Transfer-Encoding: chunked\r\n\r\n${body.split('').map(chunk).join('')}0\r\n\r\n`,
    zero: `${head}Content-Length: 0\r\n\r\n${body}`,
    both: `${head}Content-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n${chunk(body)}0\r\n\r\n`,
    'both, other way': `${head}Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n${chunk(body)}0\r\n\r\n`,
    'two lengths': `${head}Content-Length: 0\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    'two types': `${head}Content-Type: text/plain\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
    'other type': `${head.replace('application/json', 'text/plain')}Content-Length: ${body.length}\r\n\r\n${body}`,
    escaped: `${head.replace('/create', '/%63reate')}Content-Length: ${body.length}\r\n\r\n${body}`,
    'larger than a MiB': `${head}Content-Length: ${body.length + 2 * MIB}\r\n\r\n${body}${' '.repeat(2 * MIB)}`,
  };
  const count = async (): Promise<number> =>
    (await callJson<unknown[]>(engine.socketPath, 'GET', '/containers/json?all=1')).length;
  await plugin.set({ deny: [{ uri: '/containers/create', body: 'Privileged' }] });
  const before = await count();
  for (const [framing, bytes] of Object.entries(framings)) {
    const connection = await RawConnection.open(engine.socketPath);
    connection.write(bytes);
    const reply = (await connection.readToEnd()).toString();
    assert.match(reply, /^(HTTP\/1\.1 4\d\d |$)/, framing);
    connection.close();
    assert.equal(await count(), before, framing);
  }
  const shown = (await asked()).filter(
    ({ fields }) => fields['RequestMethod'] === 'POST' && fields['RequestBody'] !== undefined,
  );
  assert.ok(shown.some(({ fields }) => String(fields['RequestBody']).length > 2 * MIB));
});

test('a body that is too large to be shown is refused before a plugin is asked', async () => {
  await plugin.set({});
  const body = JSON.stringify({ Image: registry.reference, Labels: { padding: 'x'.repeat(5 * MIB) } });
  const head = 'POST /containers/create HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n';
  const requests = [
    `${head}Content-Length: ${body.length}\r\n\r\n${body}`,
    `${head}Transfer-Encoding: chunked\r\n\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`,
  ];
  for (const bytes of requests) {
    const connection = await RawConnection.open(engine.socketPath);
    connection.write(bytes);
    assert.match(
      await connection.readThrough('which is all that authorization plugins are shown"}\n'),
      /^HTTP\/1\.1 413 /,
    );
    if (bytes.includes('chunked')) {
      // It ends with the reply: nothing behind such a body is a request.
      assert.equal((await connection.readToEnd()).toString(), '');
      connection.close();
      continue;
    }
    // The rest of the body was read and dropped: the connection goes on.
    connection.write('GET /_ping HTTP/1.1\r\nHost: x\r\n\r\n');
    assert.match(await connection.readThrough('\r\n\r\nOK'), /^HTTP\/1\.1 200 OK/);
    connection.close();
  }
  const questions = (await asked()).filter(({ fields }) => fields['RequestMethod'] === 'POST');
  assert.deepEqual(questions, []);
});

test('an archive is not shown, its request is', async () => {
  await plugin.set({});
  const archive = Buffer.alloc(10 * MIB);
  const imported = await call(engine.socketPath, 'POST', '/images/create?fromSrc=-&repo=imported', {
    body: archive,
    headers: { 'Content-Type': 'application/x-tar' },
  });
  assert.equal(imported.status, 200, imported.text);
  const [requested] = await asked();
  assert.equal(requested?.fields['RequestUri'], '/images/create?fromSrc=-&repo=imported');
  assert.equal(requested.fields['RequestBody'], undefined);
  const loaded = await call(engine.socketPath, 'POST', '/images/load', { body: archive });
  assert.notEqual(loaded.status, 413);
  await plugin.set({});
  const login = { username: 'u', password: 'hunter2', serveraddress: '127.0.0.1:1' };
  await call(engine.socketPath, 'POST', '/auth', { json: login });
  assert.equal((await asked()).length, 2);
  assert.doesNotMatch(JSON.stringify(await plugin.questions()), /hunter2|aHVudGVyMg/);
  await plugin.set({ deny: [{ uri: 'fromSrc=' }] });
  const denied = await call(engine.socketPath, 'POST', '/images/create?fromSrc=-&repo=denied', { body: archive });
  assert.equal(denied.status, 403);
});

test('files are copied in and out when that is allowed', async () => {
  await plugin.set({});
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', {
    json: { Image: registry.reference },
  });
  const path = `/containers/${Id}/archive?path=/`;
  const content = Buffer.alloc(3 * MIB, 'copied ');
  assert.equal((await call(engine.socketPath, 'PUT', path, { body: tarOf([{ path: 'file', content }]) })).status, 200);
  const got = await call(engine.socketPath, 'GET', `${path}file`);
  assert.ok(got.body.subarray(512, 512 + content.length).equals(content));
  await plugin.set({ deny: [{ phase: 'reply', uri: 'path=/file' }] });
  assert.equal((await call(engine.socketPath, 'GET', `${path}file`)).status, 403);
  await plugin.set({});
  await call(engine.socketPath, 'DELETE', `/containers/${Id}`);
});

test('every plugin must allow, in order: the first denial counts', async () => {
  await use(plugin, second);
  await plugin.set({});
  await second.set({ deny: [{ uri: '/info' }] });
  assert.equal((await call(engine.socketPath, 'GET', '/info')).text, denial(second));
  assert.equal((await asked()).length, 1);
  await plugin.set({ deny: [{ uri: '/info' }] });
  await second.set({});
  assert.equal((await call(engine.socketPath, 'GET', '/info')).text, denial(plugin));
  assert.deepEqual(await asked(second), []);
  await plugin.set({});
  const info = await callJson<{ Plugins: { Authorization: string[] } }>(engine.socketPath, 'GET', '/info');
  assert.deepEqual(info.Plugins.Authorization, [plugin.socketPath, second.socketPath]);
  await use(plugin);
});

const failures: readonly [behaviour: Behaviour, reason: RegExp][] = [
  ['rubbish', /the answer is not JSON/],
  ['fail', /AuthZPlugin\.AuthZReq: out of order/],
  ['err', /cannot say/],
  ['maybe', /no boolean/],
  ['cut', /AuthZPlugin\.AuthZReq: /],
  ['hang', /no answer within 10 seconds/],
];
for (const [behaviour, reason] of failures) {
  test(`a plugin that answers by "${behaviour}" denies`, async () => {
    await plugin.set({ behaviour });
    const reply = await call(engine.socketPath, 'GET', '/version');
    assert.equal(reply.status, 500);
    assert.match(reply.text, /plugin .*first\.sock failed with error: /);
    assert.match(reply.text, reason);
    await plugin.set({});
    assert.equal((await call(engine.socketPath, 'GET', '/version')).status, 200);
  });
}

test('a client that leaves while a plugin thinks leaves nothing behind', async () => {
  await plugin.set({ behaviour: 'hang' });
  const connection = await RawConnection.open(engine.socketPath);
  connection.write(
    'POST /containers/create?name=of-nobody HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}',
  );
  await waitFor('the question', async () => (await asked()).length > 0);
  connection.close();
  await plugin.set({});
  assert.equal((await call(engine.socketPath, 'GET', '/containers/of-nobody/json')).status, 404);
});

test('a plugin that died denies until it is there again', async () => {
  await plugin.set({ behaviour: 'die' });
  const dying = await call(engine.socketPath, 'GET', '/version');
  assert.equal(dying.status, 500);
  await plugin.stop();
  assert.equal((await call(engine.socketPath, 'GET', '/version')).status, 500);
  // A client that asks while the plugin starts again only waits.
  const waiting = call(engine.socketPath, 'GET', '/version');
  plugin = await AuthorizationPlugin.start(plugin.socketPath);
  assert.equal((await waiting).status, 200);
});

test('a reload turns plugins on and off at once', async () => {
  await plugin.set({ deny: [{ uri: '/version' }] });
  assert.equal((await call(engine.socketPath, 'GET', '/version')).status, 403);
  await use();
  assert.equal((await call(engine.socketPath, 'GET', '/version')).status, 200);
  assert.deepEqual(
    (await callJson<{ Plugins: { Authorization: unknown } }>(engine.socketPath, 'GET', '/info')).Plugins.Authorization,
    null,
  );
  await use(plugin);
  assert.equal((await call(engine.socketPath, 'GET', '/version')).status, 403);
});

test('a plugin that cannot be found denies everything until the file names another', async () => {
  await configure({ 'authorization-plugins': ['no-such-plugin'] });
  const reply = await call(engine.socketPath, 'GET', '/version');
  assert.deepEqual(
    [reply.status, reply.text],
    [500, '{"message":"plugin no-such-plugin failed with error: plugin \\"no-such-plugin\\" not found"}\n'],
  );
  await waitFor('the log to say so', () =>
    /plugin no-such-plugin failed with error.*it denies every request/.test(engine.log),
  );
  await use(plugin);
  assert.equal((await call(engine.socketPath, 'GET', '/version')).status, 200);
});

test('plugins are found by name where other engines look for them', async () => {
  const name = `engined-test-${process.pid}`;
  const dir = '/run/docker/plugins';
  const madeDir = existsSync(dir) ? undefined : await mkdir(dir, { recursive: true });
  const socket = join(dir, `${name}.sock`);
  const named = await AuthorizationPlugin.start(socket, { deny: [{ uri: '/version' }] });
  try {
    await configure({ 'authorization-plugins': [name] });
    assert.equal(
      (await call(engine.socketPath, 'GET', '/version')).text,
      `{"message":"authorization denied by plugin ${name}: not for you"}\n`,
    );
  } finally {
    await named.stop();
    await rm(socket, { force: true });
    if (madeDir !== undefined) await rm(madeDir, { recursive: true });
  }
  const spec = join(engine.dir, 'named.json');
  await writeFile(spec, JSON.stringify({ Name: 'named', Addr: `unix://${plugin.socketPath}` }));
  await configure({ 'authorization-plugins': [spec] });
  assert.equal((await call(engine.socketPath, 'GET', '/version')).status, 200);
  assert.notEqual((await asked()).length, 0);
  await use(plugin);
});

test('the daemon does not start without its plugins', async () => {
  await assert.rejects(
    Engine.start(engined({ args: ['--authorization-plugin', 'no-such-plugin'] })),
    /plugin no-such-plugin failed with error: plugin \\?"no-such-plugin\\?" not found/,
  );
});

/** A plugin that answers its greeting when it is told to, and allows everything. */
async function slowToGreet(socketPath: string, greeting: object = { Implements: ['authz'], Allow: true }) {
  const told = deferred();
  const calls: (string | undefined)[] = [];
  const server = createServer(({ url }, response) => {
    calls.push(url);
    void told.promise.then(() => response.end(JSON.stringify(greeting)));
  }).listen(socketPath);
  await once(server, 'listening');
  return { calls, tell: () => told.resolve(), close: () => server.close() };
}

test('a reload during the start decides who is asked, from the first request on', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'authorization-start-'));
  const [hold, held] = [join(dir, 'hold'), join(dir, 'held')];
  // The daemon's supervisor starts when the file is gone.
  const script = [`if [ -e ${hold} ]; then : > ${held}; fi`, `while [ -e ${hold} ]; do sleep 0.05; done`];
  await writeFile(
    join(dir, 'containerd'),
    ['#!/bin/sh', `PATH=\${PATH#*:}`, ...script, 'exec containerd "$@"', ''].join('\n'),
    { mode: 0o755 },
  );
  const slow = await slowToGreet(join(dir, 'slow.sock'));
  const useless = await slowToGreet(join(dir, 'useless.sock'), { Implements: [] });
  const file: Record<string, unknown> = {};
  const starting = await Engine.start(engined({ env: { PATH: `${dir}:${process.env['PATH']}` }, file }));
  const isHeld = (): boolean => existsSync(held);
  const isGreeted = (): boolean => slow.calls.length > 0;
  const isUselessGreeted = (): boolean => useless.calls.length > 0;
  const letGo = (): void => rmSync(hold, { force: true });
  const cases = [
    { at: 'the supervisor starts, no plugin before', before: [], reached: isHeld, goOn: letGo },
    { at: 'the supervisor starts', before: [plugin.socketPath], reached: isHeld, goOn: letGo },
    { at: 'a plugin is greeted', before: [join(dir, 'slow.sock')], reached: isGreeted, goOn: slow.tell },
    {
      at: 'a plugin is greeted that will turn out to be none',
      before: [join(dir, 'useless.sock')],
      reached: isUselessGreeted,
      goOn: useless.tell,
    },
  ];
  try {
    for (const { at, before, reached, goOn } of cases) {
      await starting.stop();
      await plugin.set({});
      await second.set({ deny: [{ uri: '/version' }] });
      await rm(held, { force: true });
      if (reached === isHeld) await writeFile(hold, '');
      file['authorization-plugins'] = before;
      const from = starting.log.length;
      const started = starting.start();
      await Promise.race([started, waitFor(at, reached)]);
      await writeFile(
        join(starting.dir, 'daemon.json'),
        JSON.stringify({ 'authorization-plugins': [second.socketPath] }),
      );
      process.kill(starting.pid, 'SIGHUP');
      await waitFor('the reload', () => starting.log.slice(from).includes('configuration reloaded'));
      assert.ok(!starting.log.slice(from).includes('API listens'), at);
      goOn();
      await started;
      assert.equal((await call(starting.socketPath, 'GET', '/version')).text, denial(second), at);
      assert.equal((await call(starting.socketPath, 'GET', '/info')).status, 200, at);
      const requests = (await asked(second)).filter(({ phase }) => phase === 'request');
      // The first ones are the `_ping`s that wait for the start.
      const uris = [...new Set(requests.map(({ fields }) => fields['RequestUri']))];
      assert.deepEqual(uris, ['/_ping', '/version', '/info'], at);
      assert.deepEqual(await asked(plugin), [], at);
    }
    assert.deepEqual(slow.calls, ['/Plugin.Activate']);
  } finally {
    letGo();
    slow.tell();
    useless.tell();
    await starting.close();
    slow.close();
    useless.close();
    await rm(dir, { recursive: true });
  }
});

test('over TLS the user is the common name of the certificate, which can be denied', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'authorization-tls-'));
  const ca = new Authority(dir, 'ca');
  const [server, alice, mallory] = [ca.issueServer(), ca.issue('alice'), ca.issue('mallory')];
  const tls = await Engine.start(
    engined({
      args: [
        '-H',
        'tcp://127.0.0.1:0',
        '--tlsverify',
        '--tlscacert',
        ca.cert,
        '--tlscert',
        server.cert,
        '--tlskey',
        server.key,
        '--feature',
        'audit',
      ],
      file: { 'authorization-plugins': [plugin.socketPath] },
    }),
  );
  try {
    const port = await tls.tcpPort();
    const versionAs = (
      { cert, key }: Certificate,
      method = 'GET',
      path = '/version',
    ): Promise<{ status: number; text: string }> =>
      new Promise((resolve, reject) => {
        const outgoing = httpsRequest(
          {
            host: '127.0.0.1',
            port,
            method,
            path,
            ca: readFileSync(ca.cert),
            cert: readFileSync(cert),
            key: readFileSync(key),
            agent: false,
          },
          (reply) => {
            let text = '';
            reply.on('data', (chunk: Buffer) => (text += chunk.toString()));
            reply.once('end', () => resolve({ status: reply.statusCode ?? 0, text }));
          },
        );
        outgoing.once('error', reject);
        outgoing.end();
      });
    await plugin.set({ deny: [{ user: '^mallory$' }] });
    assert.equal((await versionAs(alice)).status, 200);
    assert.deepEqual(await versionAs(mallory), { status: 403, text: denial(plugin) });
    const [question] = await asked();
    assert.equal(question?.fields['User'], 'alice');
    assert.equal(question.fields['UserAuthNMethod'], 'TLS');
    const [pem] = question.fields['RequestPeerCertificates'] as string[];
    assert.equal(
      new X509Certificate(Buffer.from(pem ?? '', 'base64')).fingerprint256,
      new X509Certificate(readFileSync(alice.cert)).fingerprint256,
    );
    await versionAs(mallory, 'POST', '/containers/absent/start');
    await waitFor('the audit line', () =>
      /msg=audit .*user=mallory method=POST path=\/containers\/absent\/start status=403 result=refused/.test(tls.log),
    );
  } finally {
    await tls.close();
    await rm(dir, { recursive: true });
  }
});
