/** Sockets that serve only what their rules allow: everything else is denied, however it is spelled. */
import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startUp } from '../../src/config/start-up.js';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson, RawConnection } from '../support/http.js';
import { SEEDED_IMAGE, withImage } from '../support/seed.js';

const READ_ONLY = ['GET /_ping', 'GET /version', 'GET /info', 'GET /events', 'GET /containers/*', 'GET /images/json'];

const cleanup = new Cleanup();
let dir = '';
let readOnly = '';
let nothing = '';
let engine: Engine;
let container = '';

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'scoped-'));
  cleanup.add(() => rm(dir, { recursive: true }));
  readOnly = join(dir, 'read-only.sock');
  nothing = join(dir, 'nothing.sock');
  const sockets = [
    { host: `unix://${readOnly}`, group: '12346', allow: READ_ONLY },
    { host: `unix://${nothing}`, allow: [] },
  ];
  engine = await Engine.start(await withImage(engined({ file: { sockets } })));
  cleanup.add(() => engine.close());
  container = await engineOk(engine, ['run', '-d', '--name', 'watched', SEEDED_IMAGE, 'sleep', '1000']);
  cleanup.add(async () => void (await engineOk(engine, ['rm', '-f', 'watched'])));
});
after(() => cleanup.run());

test('the socket has its own group, and a monitoring agent can read through it', async () => {
  const { mode, gid } = statSync(readOnly);
  assert.deepEqual([mode & 0o777, gid], [0o660, 12346]);
  for (const path of [
    '/_ping',
    '/version',
    '/info',
    '/containers/json',
    '/v1.24/containers/json',
    `/v1.41/containers/${container}/json`,
    '/images/json',
    '/containers/watched/top',
  ]) {
    assert.equal((await call(readOnly, 'GET', path)).status, 200, path);
  }
  assert.equal((await call(readOnly, 'HEAD', '/_ping')).status, 200);
});

test('what no rule names is denied with a clear message, and everything when there is no rule', async () => {
  const denied = await call(readOnly, 'POST', '/v1.41/containers/watched/stop');
  assert.deepEqual(
    [denied.status, denied.text],
    [403, '{"message":"POST /containers/watched/stop is not allowed on this socket"}\n'],
  );
  assert.equal((await call(readOnly, 'GET', '/volumes')).status, 403);
  assert.equal((await call(readOnly, 'GET', '/engine/config')).status, 403);
  for (const path of ['/_ping', '/version', '/containers/json'])
    assert.equal((await call(nothing, 'GET', path)).status, 403);
});

const MUTATING = [
  'POST /commit?container=watched',
  'POST /containers/create?name=new',
  'POST /containers/prune',
  'POST /containers/watched/attach?stdin=1&stream=1',
  'POST /containers/watched/exec',
  'POST /containers/watched/kill',
  'POST /containers/watched/pause',
  'POST /containers/watched/rename?name=other',
  'POST /containers/watched/resize?h=1&w=1',
  'POST /containers/watched/restart?t=0',
  'POST /containers/watched/start',
  'POST /containers/watched/stop?t=0',
  'POST /containers/watched/unpause',
  'POST /containers/watched/update',
  'POST /containers/watched/wait',
  'PUT /containers/watched/archive?path=/',
  'DELETE /containers/watched?force=1',
  'DELETE /containers/watched/json?force=1',
  'POST /exec/abc/start',
  'POST /exec/abc/resize',
  'POST /images/create?fromImage=x',
  'POST /images/load',
  'POST /images/prune',
  'POST /images/watched/push',
  'POST /images/watched/tag?repo=r',
  'DELETE /images/watched?force=1',
  'POST /build',
  'POST /auth',
  'POST /session',
  'POST /grpc',
  'POST /networks/create',
  'POST /networks/prune',
  'POST /networks/bridge/connect',
  'POST /networks/bridge/disconnect',
  'DELETE /networks/bridge',
  'POST /volumes/create',
  'POST /volumes/prune',
  'DELETE /volumes/v',
  'POST /engine/config/reload',
  'POST /swarm/init',
  'POST /plugins/pull',
];

/** Ways to write a path that a careless comparison takes for another one. */
const SPELLINGS: readonly ((path: string) => string)[] = [
  (path) => path,
  (path) => `/v1.24${path}`,
  (path) => `/v1.51${path}`,
  (path) => `/v9.99${path}`,
  (path) => `/${path}`,
  (path) => path.replace('/', '/./'),
  (path) => `/containers/json/..${path}`,
  (path) => `/containers/..${path}`,
  (path) => `/containers/json/../../..${path}`,
  (path) => `/containers/%2e%2e${path}`,
  (path) => path.replaceAll('/', '%2f').replace('%2f', '/'),
  (path) => path.replace(/[a-z]/, (letter) => `%${letter.charCodeAt(0).toString(16)}`),
  (path) => path.toUpperCase(),
  (path) => path.replace(/(\?|$)/, '/$1'),
  (path) => path.replace(/(\?|$)/, '%20$1'),
  (path) => path.replace(/(\?|$)/, ';/containers/json$1'),
  (path) => path.replace(/(\?|$)/, '#/containers/json$1'),
  (path) => `http://localhost${path}`,
  (path) => `/containers/json${path}`,
];

test('no spelling of a path gets around the rules', async () => {
  const before = JSON.stringify(await state());
  const answers = new Map<number, number>();
  for (const mutating of MUTATING) {
    const [method = '', path = ''] = mutating.split(' ');
    for (const spell of SPELLINGS) {
      const connection = await RawConnection.open(readOnly);
      const target = spell(path);
      connection.write(
        `${method} ${target} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n` +
          'Connection: close\r\n\r\n{}',
      );
      const reply = (await connection.readToEnd()).toString();
      connection.close();
      const status = Number(/^HTTP\/1\.1 (\d+)/.exec(reply)?.[1]);
      answers.set(status, (answers.get(status) ?? 0) + 1);
      assert.ok([301, 400, 403, 404, 505].includes(status), `${method} ${target}: ${reply}`);
    }
  }
  assert.ok((answers.get(403) ?? 0) > 200, JSON.stringify([...answers]));
  assert.equal(JSON.stringify(await state()), before);
});

test('no other method and no header turns a reading request into a writing one', async () => {
  const before = JSON.stringify(await state());
  const headers = {
    'X-HTTP-Method-Override': 'POST',
    'X-HTTP-Method': 'DELETE',
    'X-Original-URL': '/containers/watched/stop',
    'X-Rewrite-URL': '/containers/watched/stop',
  };
  assert.equal((await call(readOnly, 'GET', '/containers/json?_method=DELETE', { headers })).status, 200);
  assert.equal((await call(readOnly, 'GET', '/containers/watched/stop', { headers })).status, 404);
  for (const method of ['post', 'Post', 'PATCH', 'FOO', 'CONNECT']) {
    const connection = await RawConnection.open(readOnly);
    connection.write(
      `${method} /containers/watched/stop HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n`,
    );
    assert.match((await connection.readToEnd()).toString(), /^(HTTP\/1\.1 (4|5)\d\d |$)/, method);
    connection.close();
  }
  assert.equal(JSON.stringify(await state()), before);
});

async function state(): Promise<unknown> {
  const containers = await callJson<{ Id: string; State: string; Names: string[] }[]>(
    engine.socketPath,
    'GET',
    '/containers/json?all=1',
  );
  const images = await callJson<{ Id: string; RepoTags: string[] }[]>(engine.socketPath, 'GET', '/images/json');
  const { StartedAt } = (
    await callJson<{ State: { StartedAt: string } }>(engine.socketPath, 'GET', '/containers/watched/json')
  ).State;
  return [
    containers.map(({ Id, State, Names }) => [Id, State, Names]),
    images.map(({ Id, RepoTags }) => [Id, RepoTags]),
    StartedAt,
  ];
}

test('a wrong entry is refused with the reason', async () => {
  const host = 'unix:///run/x.sock';
  const wrong: [sockets: unknown, reason: RegExp][] = [
    [{}, /must be an array/],
    [[1], /must be an array of objects/],
    [[{ allow: [] }], /host must be an address/],
    [[{ host }], /allow must be an array/],
    [[{ host, allow: ['GET containers'] }], /invalid rule "GET containers"/],
    [[{ host, allow: [], deny: [] }], /unknown member "deny"/],
    [[{ host: 'fd://', allow: [] }], /must be unix:\/\/ or tcp:\/\//],
    [[{ host: 'tcp://127.0.0.1:1', group: 'g', allow: [] }], /only unix sockets have a group/],
    [
      [
        { host, allow: [] },
        { host, allow: [] },
      ],
      /listed twice/,
    ],
  ];
  const file = join(dir, 'wrong.json');
  for (const [sockets, reason] of wrong) {
    await writeFile(file, JSON.stringify({ sockets }));
    const outcome = startUp(['--validate', '--config-file', file], {}, '0');
    assert.equal(outcome.kind === 'exit' && outcome.code, 1);
    assert.match(outcome.kind === 'exit' ? outcome.stderr : '', reason);
  }
  const group = { file: { sockets: [{ host: `unix://${join(dir, 'g.sock')}`, group: 'no-such-group', allow: [] }] } };
  await assert.rejects(Engine.start(engined(group)), /group no-such-group not found/);
});
