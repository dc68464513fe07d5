/** Images and containers with thousands of labels, variables or ports: those that would hold others up are refused. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { archiveOf, load, oldArchive } from '../support/image-archives.js';
import { buildImage, buildLayer, tarOf } from '../support/image-builder.js';
import { startLyingRegistry } from '../support/lying-registry.js';
import { pingWhile } from '../support/ping.js';
import { pull } from '../support/pulls.js';

const cleanup = new Cleanup();
const layer = buildLayer([{ path: 'only', content: 'in these images\n' }]);
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup, engined({ args: ['--max-download-attempts', '1'] })));
});
after(() => cleanup.run());

const labels = (length: number): Record<string, string> =>
  Object.fromEntries(Array.from({ length }, (_, at) => [`label.${at}`, 'v']));
const variables = (length: number): string[] => Array.from({ length }, (_, at) => `V${at}=v`);
const ports = (length: number): Record<string, object> =>
  Object.fromEntries(Array.from({ length }, (_, at) => [`${at + 1}/tcp`, {}]));

const EXCESSIVE: readonly [name: string, config: Readonly<Record<string, unknown>>, message: RegExp][] = [
  [
    'too many labels',
    { Labels: labels(5001) },
    /invalid image configuration.*: config\.Labels has more than 5000 members/,
  ],
  [
    'too many variables',
    { Env: variables(5001) },
    /invalid image configuration.*: config\.Env has more than 5000 members/,
  ],
  ['too many ports', { ExposedPorts: ports(20_001) }, /invalid image configuration.*more than 20000 members/],
  ['very many labels', { Labels: labels(60_000) }, /invalid image configuration.*more than 20000 members/],
  ['long labels', { Labels: { a: 'x'.repeat(2 << 20) } }, /image configuration.* larger than 2097152 bytes/],
];

for (const [name, config, message] of EXCESSIVE) {
  test(`an image with ${name} is neither pulled nor loaded`, async () => {
    const built = buildImage({ layers: [layer], config });
    const registry = await startLyingRegistry(built, () => false);
    try {
      const pulled = await pingWhile(engine, () => pull(engine, `${registry.host}/some/thing:1`));
      assert.match(pulled.error ?? '', message);
    } finally {
      await registry.stop();
    }
    const archive = archiveOf(oldArchive(built, ['some/thing:1']));
    const loaded = await pingWhile(engine, () => load(engine, archive));
    assert.match(loaded.error ?? '', message);
    assert.equal((await call(engine.socketPath, 'GET', '/images/some/thing:1/json')).status, 404);
  });
}

test('a container, a commit and a build that would have too many are refused by the name of the member', async () => {
  const post = (path: string, json: unknown): ReturnType<typeof call> =>
    call(engine.socketPath, 'POST', path, { json });
  const refused = await post('/containers/create', { Image: image, Labels: labels(5001) });
  assert.equal(refused.text, '{"message":"invalid container configuration: Labels has more than 5000 members"}\n');
  assert.equal(refused.status, 400);
  const made = await post('/containers/create?name=many', { Image: image, Labels: labels(4900), Env: variables(4900) });
  assert.equal(made.status, 201, made.text);
  const commit = await post('/commit?container=many&repo=too&tag=many', {
    Labels: Object.fromEntries(Object.keys(labels(200)).map((name) => [`more.${name}`, 'v'])),
  });
  assert.match(commit.text, /invalid image configuration: config\.Labels has more than 5000 members/);
  assert.equal(commit.status, 400);
  const committed = await post('/commit?container=many&repo=just&tag=enough', {});
  assert.equal(committed.status, 201, committed.text);
  await callJson(engine.socketPath, 'DELETE', '/containers/many');

  const dockerfile = `FROM just:enough\nLABEL ${Array.from({ length: 200 }, (_, at) => `more.${at}=v`).join(' ')}\n`;
  const build = await call(engine.socketPath, 'POST', '/build?t=too:many', {
    body: tarOf([{ path: 'Dockerfile', content: dockerfile }]),
    headers: { 'Content-Type': 'application/x-tar' },
  });
  assert.match(build.text, /invalid image configuration: config\.Labels has more than 5000 members/);
  assert.equal((await call(engine.socketPath, 'GET', '/images/too:many/json')).status, 404);
  await callJson(engine.socketPath, 'DELETE', '/images/just:enough');
});

test('lists of a container that are too long are refused by their names', async () => {
  const entries = (length: number): [string, object][] => Array.from({ length }, (_, at) => [`n${at}`, {}]);
  const bindings = (length: number): object[] => Array.from({ length }, () => ({ HostPort: '' }));
  const refusals: readonly [given: object, message: string][] = [
    [{ HostConfig: { Binds: variables(1001) } }, 'HostConfig.Binds has more than 1000 members'],
    [{ hostconfig: { devices: bindings(1001) } }, 'hostconfig.devices has more than 1000 members'],
    [{ HostConfig: { ExtraHosts: variables(5001) } }, 'HostConfig.ExtraHosts has more than 5000 members'],
    [{ HostConfig: { PortBindings: { 80: [], ...ports(20_000) } } }, 'more than 20000 members'],
    [
      { HostConfig: { PortBindings: { 80: bindings(10_000), 81: bindings(10_001) } } },
      'HostConfig.PortBindings has more than 20000 bindings',
    ],
    [
      { HostConfig: { LogConfig: { Type: 'json-file', Config: labels(1001) } } },
      'HostConfig.LogConfig.Config has more than 1000 members',
    ],
    [
      { NetworkingConfig: { EndpointsConfig: Object.fromEntries(entries(1001)) } },
      'NetworkingConfig.EndpointsConfig has more than 1000 members',
    ],
    [
      { NetworkingConfig: { EndpointsConfig: { one: { Aliases: variables(1001) } } } },
      'NetworkingConfig.EndpointsConfig.one.Aliases has more than 1000 members',
    ],
    [
      { HostConfig: { LogConfig: { Type: 'json-file', Config: { labels: 'x'.repeat(65_537) } } } },
      "log opt 'labels' is longer than 65536 characters",
    ],
    [
      { HostConfig: { SecurityOpt: [`seccomp={"defaultAction":"${'x'.repeat(1 << 18)}"}`] } },
      'Decoding seccomp profile failed: it is longer than 262144 characters',
    ],
  ];
  for (const [given, message] of refusals) {
    const refused = await call(engine.socketPath, 'POST', '/containers/create', { json: { Image: image, ...given } });
    assert.ok(refused.text.includes(message), refused.text);
    assert.equal(refused.status, 400);
  }
});

test('a container that publishes as many ports as it may is kept and shown as a whole', async () => {
  const PortBindings = Object.fromEntries(
    Object.keys(ports(20_000)).map((port) => [port, [{ HostIp: '', HostPort: port.split('/')[0] }]]),
  );
  const json = { Image: image, ExposedPorts: ports(20_000), HostConfig: { PortBindings } };
  const made = await call(engine.socketPath, 'POST', '/containers/create?name=wide', { json });
  assert.equal(made.status, 201, made.text);
  type Shown = { Config: { ExposedPorts: object }; HostConfig: { PortBindings: object } };
  const check = async (): Promise<void> => {
    const shown = await callJson<Shown>(engine.socketPath, 'GET', '/containers/wide/json');
    assert.deepEqual(shown.Config.ExposedPorts, json.ExposedPorts);
    assert.deepEqual(shown.HostConfig.PortBindings, PortBindings);
  };
  await check();
  await engine.stop();
  await engine.start();
  await check();
  await callJson(engine.socketPath, 'DELETE', '/containers/wide');
});

test('ports that look for a free number of a range hold nobody up', async () => {
  const binding = { HostIp: '127.0.0.1', HostPort: '20000-29999' };
  const PortBindings = { '80/tcp': Array.from({ length: 400 }, () => binding) };
  const json = { Image: image, Cmd: ['sleep', '1000'], HostConfig: { PortBindings } };
  await pingWhile(engine, async () => {
    const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', { json });
    const started = await call(engine.socketPath, 'POST', `/containers/${Id}/start`);
    assert.equal(started.status, 204, started.text);
    type Shown = { NetworkSettings: { Ports: Record<string, { HostPort: string }[]> } };
    const { NetworkSettings } = await callJson<Shown>(engine.socketPath, 'GET', `/containers/${Id}/json`);
    const taken = NetworkSettings.Ports['80/tcp']?.map(({ HostPort }) => HostPort);
    assert.equal(new Set(taken).size, 400);
    assert.equal((await call(engine.socketPath, 'DELETE', `/containers/${Id}?force=1`)).status, 204);
  });
});

test('what is as large as it may be is shown as a whole', async () => {
  const config = { Labels: labels(5000), Env: variables(5000), ExposedPorts: ports(20_000) };
  const tags = ['a', 'b', 'c', 'd', 'e'];
  for (const [at, tag] of tags.entries()) {
    const one = buildImage({ layers: [layer], config, created: `2024-01-02T03:04:0${at}Z` });
    assert.equal((await load(engine, archiveOf(oldArchive(one, [`large:${tag}`])))).error, undefined);
  }
  const listed = await callJson<{ RepoTags: string[]; Labels: object | null }[]>(
    engine.socketPath,
    'GET',
    '/images/json',
  );
  const large = listed.filter(({ RepoTags }) => RepoTags[0]?.startsWith('large:') === true);
  assert.deepEqual(
    large.map(({ Labels }) => Object.keys(Labels ?? {}).length),
    [5000, 5000, 5000, 5000, 5000],
  );
  const made = await call(engine.socketPath, 'POST', '/containers/create?name=large', {
    json: { Image: 'large:a', Cmd: ['x'] },
  });
  assert.equal(made.status, 201, made.text);
  type Shown = { Config: { Labels: object; Env: string[]; ExposedPorts: object } };
  const { Config } = await callJson<Shown>(engine.socketPath, 'GET', '/containers/large/json');
  assert.deepEqual(Config.Labels, config.Labels);
  assert.deepEqual(Config.Env, config.Env);
  assert.deepEqual(Config.ExposedPorts, config.ExposedPorts);
  const containers = await callJson<{ Labels: object }[]>(engine.socketPath, 'GET', '/containers/json?all=1&size=1');
  assert.deepEqual(
    containers.map(({ Labels }) => Labels),
    [config.Labels],
  );
  await callJson(engine.socketPath, 'DELETE', '/containers/large');
  for (const tag of tags) await callJson(engine.socketPath, 'DELETE', `/images/large:${tag}`);
});
