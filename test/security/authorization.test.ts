/** Authorization plugins: a plugin process of the test decides what a real daemon serves. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { AuthorizationPlugin, type Behaviour } from '../support/authorization-plugin.js';
import { Cleanup } from '../support/cleanup.js';
import { CliSession, docker, dockerOk } from '../support/cli.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { tarOf } from '../support/image-builder.js';
import { engined } from '../support/engined.js';
import { call, callJson, open, RawConnection } from '../support/http.js';
import { waitFor } from '../support/wait.js';

const MIB = 1024 * 1024;
const cleanup = new Cleanup();
let engine: Engine;
let image: string;
let plugin: AuthorizationPlugin;
let second: AuthorizationPlugin;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup, engined()));
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
test('a plugin is asked about the request and about its reply, in the fields of the protocol', async () => {
  await plugin.set({});
  const body = { Image: image, Cmd: ['true'] };
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
  assert.deepEqual([images.status, images.text], [403, plugin.denial]);
  assert.equal(images.headers['content-type'], 'application/json');
  assert.equal((await create({ Image: image, HostConfig: { Privileged: true } }, { 'X-N': '1' })).text, plugin.denial);
  const name = 'kept-by-denial';
  await callJson(engine.socketPath, 'POST', `/containers/create?name=${name}`, { json: { Image: image } }, 201);
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
  assert.equal((await call(engine.socketPath, 'GET', '/info')).text, plugin.denial);
  assert.equal((await call(engine.socketPath, 'GET', '/version')).status, 200);
  const absent = await call(engine.socketPath, 'GET', '/containers/absent/json');
  assert.deepEqual([absent.status, absent.text], [403, plugin.denial]);
  const id = (await dockerOk(engine, ['run', '-d', image, 'sh', '-c', 'echo secret; sleep 1000'])).trim();
  const logs = await call(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1&follow=1`);
  assert.deepEqual([logs.status, logs.text], [403, plugin.denial]);
  const connection = await RawConnection.open(engine.socketPath);
  connection.write(
    `POST /containers/${id}/attach?stream=1&stdout=1&logs=1 HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\n` +
      'Upgrade: tcp\r\n\r\n',
  );
  const attached = (await connection.readToEnd()).toString();
  assert.match(attached, /^HTTP\/1\.1 403 Forbidden/);
  assert.doesNotMatch(attached, /secret/);
  connection.close();
  await dockerOk(engine, ['rm', '-f', id]);
});

test('streams and hijacked connections work when they are allowed', async () => {
  await plugin.set({});
  assert.equal(await dockerOk(engine, ['run', '--rm', image, 'echo', 'through']), 'through');
  const id = (await dockerOk(engine, ['run', '-d', image, 'sh', '-c', 'echo one; sleep 1000'])).trim();
  const session = new CliSession(engine, ['exec', '-i', id, 'cat']);
  session.write('typed\n');
  await waitFor('the echo', () => session.stdout === 'typed\n');
  session.end();
  await session.ended();
  const logs = await open(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1&follow=1`);
  const first: IteratorResult<Buffer> = await logs.message[Symbol.asyncIterator]().next();
  assert.match(String(first.value), /one\n/);
  logs.close();
  const execs = (await plugin.asked()).filter(
    ({ phase, fields }) => phase === 'request' && /exec\/[^/]+\/start/.test(String(fields['RequestUri'])),
  );
  assert.match(String(execs[0]?.fields['RequestBody']), /"Detach":false/);
  const replies = (await plugin.asked()).filter(
    ({ phase, fields }) => phase === 'reply' && /\/attach/.test(String(fields['RequestUri'])),
  );
  assert.equal(replies[0]?.fields['ResponseStatusCode'], 101);
  await dockerOk(engine, ['rm', '-f', id]);
});

test('the body that a handler gets is the one that was shown, however it is framed', async () => {
  const body = JSON.stringify({ Image: image, HostConfig: { Privileged: true } });
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
  for (const twice of [
    '{"HostConfig":{"Privileged":true},"HostConfig":{}}',
    '{"Image":"a","HostConfig":{},"hostConfig":{}}',
  ]) {
    const options = { body: twice, headers: { 'Content-Type': 'application/json' } };
    const { status, text } = await call(engine.socketPath, 'POST', '/containers/create', options);
    assert.deepEqual([status, /two (members of one name|spellings)/.test(text)], [400, true], text);
  }
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
  const shown = (await plugin.asked()).filter(
    ({ fields }) => fields['RequestMethod'] === 'POST' && fields['RequestBody'] !== undefined,
  );
  assert.ok(shown.some(({ fields }) => String(fields['RequestBody']).length > 2 * MIB));
});

test('a body that is too large to be shown is refused before a plugin is asked', async () => {
  await plugin.set({});
  const body = JSON.stringify({ Image: image, Labels: { padding: 'x'.repeat(5 * MIB) } });
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
  const questions = (await plugin.asked()).filter(({ fields }) => fields['RequestMethod'] === 'POST');
  assert.deepEqual(questions, []);
});

test('clients that only promise large bodies have nobody else refused', async () => {
  await plugin.set({});
  const head = 'POST /containers/create HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n';
  const promised = await Promise.all(
    Array.from({ length: 70 }, async (_, i) => {
      const connection = await RawConnection.open(engine.socketPath);
      connection.write(`${head}${i % 2 === 0 ? `Content-Length: ${4 * MIB}` : 'Transfer-Encoding: chunked'}\r\n\r\n`);
      return connection;
    }),
  );
  // The daemon has seen their heads once it answers a later one.
  assert.equal((await call(engine.socketPath, 'GET', '/_ping')).status, 200);
  const reply = await create({ Image: image });
  assert.equal(reply.status, 201, reply.text);
  for (const connection of promised) connection.close();
});

test('an archive is not shown, its request is', async () => {
  await plugin.set({});
  const archive = Buffer.alloc(10 * MIB);
  const imported = await call(engine.socketPath, 'POST', '/images/create?fromSrc=-&repo=imported', {
    body: archive,
    headers: { 'Content-Type': 'application/x-tar' },
  });
  assert.equal(imported.status, 200, imported.text);
  const [requested] = await plugin.asked();
  assert.equal(requested?.fields['RequestUri'], '/images/create?fromSrc=-&repo=imported');
  assert.equal(requested.fields['RequestBody'], undefined);
  const loaded = await call(engine.socketPath, 'POST', '/images/load', { body: archive });
  assert.notEqual(loaded.status, 413);
  await plugin.set({});
  const login = { username: 'u', password: 'hunter2', serveraddress: '127.0.0.1:1' };
  await call(engine.socketPath, 'POST', '/auth', { json: login });
  assert.equal((await plugin.asked()).length, 2);
  assert.doesNotMatch(JSON.stringify(await plugin.questions()), /hunter2|aHVudGVyMg/);
  await plugin.set({ deny: [{ uri: 'fromSrc=' }] });
  const denied = await call(engine.socketPath, 'POST', '/images/create?fromSrc=-&repo=denied', { body: archive });
  assert.equal(denied.status, 403);
});

test('files are copied in and out when that is allowed', async () => {
  await plugin.set({});
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', {
    json: { Image: image },
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
  assert.equal((await call(engine.socketPath, 'GET', '/info')).text, second.denial);
  assert.equal((await plugin.asked()).length, 1);
  await plugin.set({ deny: [{ uri: '/info' }] });
  await second.set({});
  assert.equal((await call(engine.socketPath, 'GET', '/info')).text, plugin.denial);
  assert.deepEqual(await second.asked(), []);
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
    'POST /containers/create?name=of-nobody HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n' +
      'Content-Length: 2\r\n\r\n{}',
  );
  await waitFor('the question', async () => (await plugin.asked()).length > 0);
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
  assert.notEqual((await plugin.asked()).length, 0);
  await use(plugin);
});
