/** Reloading the configuration of a running daemon: what changes is seen in what the daemon does. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { chmod, readdir, readFile, writeFile } from 'node:fs/promises';
import { hostname, networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { after, before, beforeEach, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { publishImage, startFaultyServer } from '../support/faulty-registry.js';
import { call, callJson, jsonLines, open } from '../support/http.js';
import { buildImage, generatedLayer, type BuiltImage } from '../support/image-builder.js';
import { pull } from '../support/pulls.js';
import { waitFor } from '../support/wait.js';
import { reloadsOf, type Result } from '../support/reloads.js';

/** Reloads under load. */
const RELOADS = 300;

const cleanup = new Cleanup();
let engine: Engine;
let busybox: string;

before(async () => {
  ({ engine, image: busybox } = await startEngineWithImage(
    cleanup,
    engined({ env: { HTTPS_PROXY: 'http://user:s3cret@127.0.0.1:9', NO_PROXY: '*' } }),
  ));
});
after(() => cleanup.run());

const { write, view, info, request, reload, hangUp } = reloadsOf(() => engine);
// Each test starts from the defaults.
beforeEach(() => reload({}));

test('SIGHUP: what the daemon says about itself follows, and nothing stays when its key goes', async () => {
  const runtimes = { other: { path: '/usr/bin/crun' } };
  const content = {
    labels: ['rack=7'],
    debug: true,
    'live-restore': true,
    runtimes,
    'default-runtime': 'other',
    features: { cdi: false },
    'registry-mirrors': ['https://mirror.test'],
  };
  const result = await hangUp(content);
  assert.equal(result.ok, true);
  assert.deepEqual(
    result.entries.map(({ key, verdict }) => `${key} ${verdict}`),
    ['debug', 'default-runtime', 'features', 'labels', 'live-restore', 'registry-mirrors', 'runtimes'].map(
      (key) => `${key} applied`,
    ),
  );
  const changed = await info();
  assert.deepEqual(
    [changed.Debug, changed.Labels, changed.LiveRestoreEnabled, changed.DefaultRuntime, changed.RegistryConfig.Mirrors],
    [true, ['rack=7'], true, 'other', ['https://mirror.test/']],
  );
  // Newer versions of the runtime tell their features besides.
  assert.equal((changed.Runtimes['other'] as { readonly path?: string } | undefined)?.path, '/usr/bin/crun');
  assert.deepEqual(changed.CDISpecDirs, []);

  const removed = await hangUp({});
  assert.deepEqual(new Set(removed.entries.map(({ verdict }) => verdict)), new Set(['removed']));
  const back = await info();
  assert.deepEqual(
    [
      back.Debug,
      back.Labels,
      back.LiveRestoreEnabled,
      back.DefaultRuntime,
      back.RegistryConfig.Mirrors,
      back.CDISpecDirs,
    ],
    [false, [], false, 'runc', null, ['/etc/cdi', '/var/run/cdi']],
  );
  assert.equal(back.Runtimes['other'], undefined);
});

test('the event has a string for every reloadable setting', async () => {
  const since = Date.now() / 1000;
  await reload({ labels: ['a=b'], 'max-concurrent-downloads': 7, mtu: 1400 });
  const { message } = await open(
    engine.socketPath,
    'GET',
    `/events?since=${since}&until=${Date.now() / 1000 + 0.001}&filters=${encodeURIComponent('{"event":["reload"]}')}`,
  );
  const events = [];
  for await (const event of jsonLines<{ Type: string; Action: string; Actor: { Attributes: Record<string, string> } }>(
    message,
  ))
    events.push(event);
  const { Actor, Type } = events.at(-1) ?? assert.fail('no event');
  assert.equal(Type, 'daemon');
  const { name, labels, debug, applied } = Actor.Attributes;
  assert.deepEqual(
    [name, labels, debug, applied, Actor.Attributes['max-concurrent-downloads'], Actor.Attributes['needs-restart']],
    [hostname(), '["a=b"]', 'false', 'labels,max-concurrent-downloads', '7', 'mtu'],
  );
  const reloadable = Object.entries(
    (await callJson<{ settings: Record<string, { reloadable: boolean }> }>(engine.socketPath, 'GET', '/engine/config'))
      .settings,
  ).filter(([, setting]) => setting.reloadable);
  for (const [key] of reloadable) assert.equal(typeof Actor.Attributes[key], 'string', key);
});

test('a bad file changes nothing and is told in the log and to who asked', async () => {
  await reload({ labels: ['a=b'] });
  for (const [content, part] of [
    [{ labels: ['a=c'], nope: 1 }, "the following directives don't match any configuration option: nope"],
    [
      { labels: ['a=c'], bridge: 'x' },
      'the following directives are specified both as a flag and in the configuration file: bridge: (from flag: ',
    ],
    ['{', 'invalid JSON at line 1'],
  ] as const) {
    const result = await hangUp(content);
    assert.equal(result.ok, false);
    assert.ok(result.message.includes(part), result.message);
    assert.deepEqual((await info()).Labels, ['a=b']);
    const reply = await call(engine.socketPath, 'POST', '/engine/config/reload');
    assert.equal(reply.status, 400);
    assert.ok((JSON.parse(reply.text) as Result).message.includes(part));
    assert.ok(engine.log.includes('reload failed, the configuration stays as it was: '), engine.log.slice(-2000));
  }
});

test('a dry run tells and does nothing', async () => {
  await reload({ labels: ['a=b'] });
  await write({ labels: ['a=c'], mtu: 1300 });
  const { ok, entries } = await request('?dryRun=1');
  assert.equal(ok, true);
  assert.deepEqual(entries, [
    { key: 'labels', verdict: 'applied', before: '[a=b]', after: '[a=c]' },
    { key: 'mtu', verdict: 'needs-restart', before: '1500', after: '1300' },
  ]);
  assert.deepEqual((await info()).Labels, ['a=b']);
  assert.notDeepEqual((await view()).lastReload?.entries, entries);
});

test('the configuration shows where each value came from, without secrets', async () => {
  await reload({ 'max-concurrent-uploads': 9 });
  const { settings } = await view();
  assert.deepEqual(
    [settings['max-concurrent-uploads']?.value, settings['max-concurrent-uploads']?.source],
    [9, 'file'],
  );
  assert.deepEqual(
    [settings['bridge']?.source, settings['mtu']?.source, settings['proxies.https-proxy']?.source],
    ['flag', 'default', 'environment'],
  );
  assert.equal(settings['proxies.https-proxy']?.value, 'http://xxxxx:xxxxx@127.0.0.1:9');
  assert.ok(!(await call(engine.socketPath, 'GET', '/engine/config')).text.includes('s3cret'));
  assert.ok(!engine.log.includes('s3cret'));
});

test('debug: lines of that level begin and end', async () => {
  const debugLines = (): number => engine.log.split('\n').filter((line) => line.includes('level=debug')).length;
  const work = (): Promise<unknown> => engineOk(engine, ['run', '--rm', busybox, 'true']);
  await reload({ debug: true });
  const before = debugLines();
  await work();
  await waitFor('debug lines', () => debugLines() > before);
  await reload({});
  const then = debugLines();
  await work();
  assert.equal(debugLines(), then);
});

test('default-runtime and runtimes: the next container uses them', async () => {
  const calls = join(engine.dir, 'calls');
  const script = join(engine.dir, 'noting-runc');
  await writeFile(script, `#!/bin/sh\necho "$*" >> ${calls}\nexec runc "$@"\n`);
  await chmod(script, 0o755);
  const create = (...args: string[]): Promise<string> =>
    engineOk(engine, ['run', '--rm', ...args, busybox, 'echo', 'ran']);
  assert.equal(await create(), 'ran');
  await assert.rejects(create('--runtime', 'noting'), /unknown or invalid runtime name: noting/);
  await reload({ runtimes: { noting: { path: script } } });
  assert.equal(existsSync(calls), false);
  assert.equal(await create('--runtime', 'noting'), 'ran');
  assert.equal(existsSync(calls), true);
  await writeFile(calls, '');
  await reload({ runtimes: { noting: { path: script } }, 'default-runtime': 'noting' });
  const id = await engineOk(engine, ['create', busybox, 'true']);
  assert.equal(
    (await callJson<{ HostConfig: { Runtime: string } }>(engine.socketPath, 'GET', `/containers/${id}/json`)).HostConfig
      .Runtime,
    'noting',
  );

  await reload({});
  await assert.rejects(engineOk(engine, ['start', id]), /unknown or invalid runtime name: noting/);
  await engineOk(engine, ['rm', id]);
});

test('registry-mirrors: the next pull asks them', async () => {
  const mirror = await startFaultyServer();
  try {
    publishImage(mirror, oneLayer(1), 'library/mirrored');
    await reload({ 'registry-mirrors': [mirror.url] });
    assert.equal((await pull(engine, 'mirrored:latest')).error, undefined);
    assert.ok(
      mirror.requests.some((line) => line.endsWith('/v2/library/mirrored/manifests/latest')),
      mirror.requests.join('\n'),
    );
  } finally {
    await mirror.stop();
  }
});

const outside = Object.values(networkInterfaces()).flatMap((addresses = []) =>
  addresses.filter(({ family, internal }) => family === 'IPv4' && !internal),
)[0]?.address;
test(
  'insecure-registries: a registry without TLS is used once it is listed',
  { skip: outside === undefined && 'no address but loopback' },
  async () => {
    const server = await startFaultyServer('0.0.0.0');
    try {
      const host = `${outside}:${server.host.split(':')[1]}`;
      publishImage(server, oneLayer(2), 'app');
      assert.notEqual((await pull(engine, `${host}/app:latest`)).error, undefined);
      await reload({ 'insecure-registries': [`${outside}/32`] });
      assert.equal((await pull(engine, `${host}/app:latest`)).error, undefined);
      await reload({});
      assert.notEqual((await pull(engine, `${host}/app:latest`)).error, undefined);
    } finally {
      await server.stop();
    }
  },
);

test('max-concurrent-downloads: so many layers at once', async () => {
  const server = await startFaultyServer();
  try {
    let [open, most] = [0, 0];
    server.intercept = (request, response) => {
      if (request.method !== 'GET' || !layerPaths.has(request.url ?? '')) return false;
      most = Math.max(most, ++open);
      response.once('close', () => open--);
      const body = server.documents.get(request.url ?? '')?.body;
      setTimeout(() => response.writeHead(200).end(body), 100);
      return true;
    };
    const layerPaths = new Set<string>();
    for (const [limit, seed] of [
      [1, 10],
      [3, 20],
    ] as const) {
      const image = buildImage({
        layers: [0, 1, 2, 3].map((n) => generatedLayer({ root: `d${n}`, bytes: 1000, files: 1, seed: seed + n })),
      });
      publishImage(server, image, `many${limit}`);
      for (const { digest } of image.layers) layerPaths.add(`/v2/many${limit}/blobs/${digest}`);
      await reload({ 'max-concurrent-downloads': limit });
      most = 0;
      assert.equal((await pull(engine, `${server.host}/many${limit}:latest`)).error, undefined);
      assert.equal(most, limit);
    }
  } finally {
    await server.stop();
  }
});

test('max-download-attempts: so often, then no more', async () => {
  const server = await startFaultyServer();
  try {
    const image = oneLayer(3);
    publishImage(server, image, 'poor');
    const path = `/v2/poor/blobs/${image.layers[0]?.digest}`;
    server.documents.set(path, { body: Buffer.from('not the layer') });
    for (const attempts of [1, 2]) {
      await reload({ 'max-download-attempts': attempts });
      server.intercept = (request, response) => request.url === path && (response.destroy(), true);
      const before = server.requests.length;
      assert.notEqual((await pull(engine, `${server.host}/poor:latest`)).error, undefined);
      assert.equal(server.requests.slice(before).filter((line) => line === `GET ${path}`).length, attempts);
    }
  } finally {
    await server.stop();
  }
});

test('live-restore: containers outlive the daemon', async () => {
  const id = await engineOk(engine, ['run', '-d', '--stop-timeout', '1', busybox, 'sleep', '600']);
  const pid = async (): Promise<number> =>
    (await callJson<{ State: { Pid: number } }>(engine.socketPath, 'GET', `/containers/${id}/json`)).State.Pid;
  const supervisor = async (): Promise<string> => readFile(join(engine.dir, 'exec/supervisor/supervisor.pid'), 'utf8');
  const ends = await engineOk(engine, ['run', '-d', busybox, 'sleep', '600']);
  const before = [await pid(), await supervisor()];
  const waiting = await callJson<{ State: { Pid: number } }>(engine.socketPath, 'GET', `/containers/${ends}/json`);
  await reload({ 'live-restore': true });
  // The new daemon starts with an empty file.
  assert.equal(await engine.stop(), 0);
  assert.ok(existsSync(`/proc/${before[0]}`));
  process.kill(waiting.State.Pid, 'SIGKILL');
  await waitFor('the other container to end', () => !existsSync(`/proc/${waiting.State.Pid}`));
  await engine.start();
  assert.deepEqual([await pid(), await supervisor()], before);
  const ended = await callJson<{ State: { ExitCode: number } }>(engine.socketPath, 'GET', `/containers/${ends}/json`);
  assert.equal(ended.State.ExitCode, 137);
  await engineOk(engine, ['rm', ends]);
  await reload({ 'live-restore': true });
  await reload({});
  assert.equal(await engine.stop(), 0);
  assert.equal(existsSync(`/proc/${before[0]}`), false);
  await assert.rejects(supervisor(), { code: 'ENOENT' });
  await engine.start();
  await engineOk(engine, ['rm', id]);
});

test('shutdown-timeout: how long containers may take', async () => {
  // It needs two seconds to end by itself, which its exit code tells.
  const slow = ['run', '-d', busybox, 'sh', '-c', "trap 'sleep 2; exit 7' TERM; sleep 1000 & wait"];
  for (const [timeout, exitCode] of [
    [1, 137],
    [10, 7],
  ] as const) {
    const id = await engineOk(engine, slow);
    await reload({ 'shutdown-timeout': timeout });
    assert.equal(await engine.stop(), 0);
    await engine.start();
    assert.equal(
      (await callJson<{ State: { ExitCode: number } }>(engine.socketPath, 'GET', `/containers/${id}/json`)).State
        .ExitCode,
      exitCode,
    );
    await engineOk(engine, ['rm', id]);
  }
});

test(`${RELOADS} reloads under load drop no request and leak nothing`, async () => {
  const openFiles = async (): Promise<number> => (await readdir(`/proc/${engine.pid}/fd`)).length;
  let requests = 0;
  const over = new AbortController();
  const client = async (path: string): Promise<void> => {
    while (!over.signal.aborted) {
      const { status, text } = await call(engine.socketPath, 'GET', path);
      assert.equal(status, 200, text);
      requests++;
    }
  };
  const before = await openFiles();
  const load = Promise.all(['/info', '/containers/json?all=1', '/_ping', '/engine/config'].map(client));
  try {
    for (let n = 1; n <= RELOADS; n++) {
      await write(
        n % 10 === 0 ? '{ broken' : { labels: [`n=${n}`], debug: n % 2 === 0, 'max-concurrent-downloads': n },
      );
      process.kill(engine.pid, 'SIGHUP');
      // Signals that arrive together are one.
      if (n % 5 === 0) await request();
    }
    assert.equal((await reload({ labels: ['last=1'] })).ok, true);
  } finally {
    over.abort();
  }
  await load;
  assert.ok(requests > RELOADS / 10);
  assert.deepEqual((await info()).Labels, ['last=1']);
  await waitFor('closed connections', async () => (await openFiles()) <= before + 5);
});

/** Other seeds make other layers, which no earlier pull has brought. */
function oneLayer(seed: number): BuiltImage {
  return buildImage({ layers: [generatedLayer({ root: 'd', bytes: 1000, files: 1, seed })] });
}
