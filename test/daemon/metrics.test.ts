/** The metrics of a daemon that works, as a collector reads them. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startSeededRegistry } from '../support/busybox-image.js';
import { Cleanup } from '../support/cleanup.js';
import { docker } from '../support/cli.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { startFaultyServer } from '../support/faulty-registry.js';
import { call, callJson } from '../support/http.js';
import { buildImage, buildLayer } from '../support/image-builder.js';

import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
let engine: Engine;
let image: string;
let url: string;
let registryHost: string;

before(async () => {
  const registry = await startSeededRegistry();
  cleanup.add(() => registry.stop());
  image = registry.reference;
  registryHost = registry.host;
  engine = await Engine.start(engined({ args: ['--experimental', '--metrics-addr', '127.0.0.1:0'] }));
  cleanup.add(() => engine.close());
  url = `http://127.0.0.1:${await engine.tcpPort()}`;
});

after(() => cleanup.run());

/** Values by series. */
async function metrics(): Promise<ReadonlyMap<string, number>> {
  const reply = await fetch(`${url}/metrics`);
  assert.equal(reply.status, 200);
  assert.match(reply.headers.get('content-type') ?? '', /^text\/plain; version=0\.0\.4/);
  const lines = (await reply.text()).split('\n').filter((line) => line !== '' && !line.startsWith('#'));
  return new Map(
    lines.map((line) => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
  );
}

test('series are there before anything has happened', async () => {
  const found = await metrics();
  for (const [object, action] of [
    ...['create', 'start', 'delete', 'changes', 'commit'].map((action) => ['container', action]),
    ...['create', 'delete', 'allocate', 'connect', 'release'].map((action) => ['network', action]),
    ...['pull', 'delete'].map((action) => ['image', action]),
  ]) {
    assert.equal(
      found.get(`engine_daemon_${object}_actions_seconds_count{action="${action}"}`),
      0,
      `${object} ${action}`,
    );
  }
  for (const name of [
    'daemon_health_checks_total',
    'daemon_health_checks_failed_total',
    'pulls_total{result="failed"}',
  ]) {
    assert.equal(found.get(`engine_${name}`), 0, name);
  }
  assert.equal(found.get('logger_log_read_operations_failed_total'), 0);
  const info = await callJson<Record<string, string>>(engine.socketPath, 'GET', '/info');
  const [series = ''] = [...found.keys()].filter((name) => name.startsWith('engine_daemon_engine_info{'));
  const wanted = {
    version: info['ServerVersion'],
    architecture: info['Architecture'],
    graphdriver: info['Driver'],
    kernel: info['KernelVersion'],
    os: info['OperatingSystem'],
    os_type: 'linux',
    os_version: info['OSVersion'],
    daemon_id: info['ID'],
  };
  for (const [label, value] of Object.entries(wanted))
    assert.ok(series.includes(`${label}="${value}"`), `${label}="${value}" in ${series}`);
});

test('what containers, pulls and requests do is counted', async () => {
  await engineOk(engine, ['pull', '-q', image]);
  await engineOk(engine, ['run', '-d', '--name', 'up', image, 'sleep', '1000']);
  await engineOk(engine, ['run', '--name', 'once', image, 'echo', 'hello']);
  await call(engine.socketPath, 'GET', '/containers/nobody/json');
  await call(engine.socketPath, 'GET', '/nowhere');
  await engineOk(engine, ['pull', '-q', `${registryHost}/nobody/has:1`]).catch(() => undefined);
  const found = await waitFor('the log to be written', async () => {
    const now = await metrics();
    return (now.get('engine_log_written_bytes_total') ?? 0) > 0 ? now : undefined;
  });
  const value = (name: string): number => found.get(name) ?? Number.NaN;
  assert.equal(value('engine_daemon_container_states_containers{state="running"}'), 1);
  assert.equal(value('engine_daemon_container_states_containers{state="stopped"}'), 1);
  assert.equal(value('engine_daemon_container_actions_seconds_count{action="create"}'), 2);
  assert.equal(value('engine_daemon_container_actions_seconds_count{action="start"}'), 2);
  assert.equal(value('engine_pulls_total{result="ok"}'), 1);
  assert.equal(value('engine_pulls_total{result="failed"}'), 1);
  assert.ok(value('engine_pull_received_bytes_total') > 100_000);
  assert.ok(value('engine_daemon_events_total') >= 6);
  assert.equal(
    value('engine_http_request_duration_seconds_count{method="GET",route="/containers/{name...}/json",code="404"}'),
    1,
  );
  assert.equal(value('engine_http_requests_refused_total{code="404"}'), 1);
  assert.ok(value('nodejs_eventloop_lag_p99_seconds') >= 0);
  const series = [...found.keys()];
  assert.deepEqual(
    series.filter((name) => /nobody|nowhere|up\b/.test(name) && !name.startsWith('engine_container_')),
    [],
    'a path became a series',
  );
  await engineOk(engine, ['rm', '-f', 'up', 'once']);
  // Its policy starts it again and again; while it waits, it is stopped for metrics and info alike.
  await engineOk(engine, ['run', '-d', '--name', 'loop', '--restart', 'always', image, 'true']);
  const starts = 'engine_daemon_container_actions_seconds_count{action="start"}';
  await waitFor('starts by policy', async () => ((await metrics()).get(starts) ?? 0) >= 5, 60_000);
  await waitFor(
    'the same in metrics and info',
    async () => {
      const info = await callJson<{ ContainersRunning: number; ContainersStopped: number }>(
        engine.socketPath,
        'GET',
        '/info',
      );
      const stopped = (await metrics()).get('engine_daemon_container_states_containers{state="stopped"}');
      return stopped === 1 && info.ContainersStopped === 1 && info.ContainersRunning === 0;
    },
    60_000,
  );
  await engineOk(engine, ['rm', '-f', 'loop']);
});

test('pulls and imports that fail inside their stream are no successes', async () => {
  const counted = async (): Promise<number> =>
    (await metrics()).get('engine_daemon_image_actions_seconds_count{action="pull"}') ?? Number.NaN;
  const before = await counted();
  const server = await startFaultyServer();
  try {
    const built = buildImage({ layers: [buildLayer([{ path: 'a', content: 'x' }])] });
    server.documents.set('/v2/app/manifests/v1', { body: built.manifest, type: built.mediaType });
    server.documents.set(`/v2/app/blobs/${built.id}`, { body: built.config });
    // The layer is missing.
    server.documents.set('/archive', { body: Buffer.from('no archive') });
    const failing = [`fromImage=${server.host}/app&tag=v1`, `fromSrc=${encodeURIComponent(`${server.url}/archive`)}`];
    for (const query of failing) {
      const { status, text } = await call(engine.socketPath, 'POST', `/images/create?${query}`);
      assert.equal(status, 200, text);
      assert.match(text, /"error":/);
    }
  } finally {
    await server.stop();
  }
  assert.equal(await counted(), before);
  await engineOk(engine, ['pull', '-q', image]);
  await waitFor('the one that succeeded', async () => (await counted()) === before + 1);
});

test('lines that non-blocking mode dropped are counted here as in inspect', async () => {
  await engineOk(engine, [
    'run',
    '--name',
    'hasty',
    '--log-opt',
    'mode=non-blocking',
    '--log-opt',
    'max-buffer-size=1k',
    image,
    'seq',
    '300000',
  ]);
  const dropped = Number(await engineOk(engine, ['inspect', '-f', '{{.LogDroppedLines}}', 'hasty']));
  assert.ok(dropped > 0, String(dropped));
  assert.equal((await engineOk(engine, ['logs', 'hasty'])).split('\n').length + dropped, 300_000);
  await waitFor('the metric', async () => (await metrics()).get('engine_log_dropped_lines_total') === dropped);
  await engineOk(engine, ['rm', 'hasty']);
});

test('what containers do on networks, health checks and readings of logs are counted', async () => {
  const actions = async (...names: readonly string[]): Promise<number[]> => {
    const found = await metrics();
    return names.map(
      (action) => found.get(`engine_daemon_network_actions_seconds_count{action="${action}"}`) ?? Number.NaN,
    );
  };
  const before = await actions('allocate', 'connect', 'release');
  const flags = ['--health-interval', '100ms', '--health-cmd'];
  await engineOk(engine, ['run', '-d', '--name', 'sick', ...flags, 'false', image, 'sleep', '1000']);
  await engineOk(engine, ['network', 'create', 'more']);
  await engineOk(engine, ['network', 'connect', 'more', 'sick']);
  await waitFor(
    'failed health checks',
    async () => ((await metrics()).get('engine_daemon_health_checks_failed_total') ?? 0) > 0,
    60_000,
  );
  assert.ok(((await metrics()).get('engine_daemon_health_check_start_duration_seconds_count') ?? 0) > 0);
  const asked = 'engine_daemon_host_info_functions_seconds_count{function="system_info"}';
  assert.ok(((await metrics()).get(asked) ?? 0) > 0);
  const path = await engineOk(engine, ['inspect', '-f', '{{.LogPath}}', 'sick']);
  await engineOk(engine, ['rm', '-f', 'sick']);
  await engineOk(engine, ['network', 'rm', 'more']);
  const wanted = [1, 2, 1].map((count, index) => count + (before[index] ?? 0)).join();
  await waitFor(
    'the networks to be left',
    async () => (await actions('allocate', 'connect', 'release')).join() === wanted,
    60_000,
  );
  await engineOk(engine, ['run', '--name', 'unreadable', image, 'echo', 'hello']);
  const own = await engineOk(engine, ['inspect', '-f', '{{.LogPath}}', 'unreadable']);
  assert.notEqual(own, path);
  // A directory opens like a file, but it cannot be read.
  await rm(own);
  await mkdir(own);
  await docker(engine, ['logs', 'unreadable']);
  await waitFor(
    'the reading',
    async () => (await metrics()).get('logger_log_read_operations_failed_total') === 1,
    60_000,
  );
  await engineOk(engine, ['rm', 'unreadable']);
});

test('the address serves the metrics only', async () => {
  assert.equal((await fetch(`${url}/containers/json`)).status, 404);
  assert.equal((await fetch(`${url}/metrics`, { method: 'POST' })).status, 404);
});

test('an address that cannot be used ends the start, and is named', async () => {
  const taken = createServer().listen(0, '127.0.0.1');
  await once(taken, 'listening');
  const dir = await mkdtemp(join(tmpdir(), 'metrics-'));
  try {
    const { port } = taken.address() as AddressInfo;
    const start = (...args: readonly string[]): string => {
      const [program = '', ...rest] = engined({ args }).command(dir, join(dir, 's'));
      const { status, stderr } = spawnSync(program, rest, { encoding: 'utf8' });
      assert.equal(status, 1, stderr);
      return stderr;
    };
    assert.match(
      start('--experimental', '--metrics-addr', `127.0.0.1:${port}`),
      /engined cannot run: metrics-addr 127\.0\.0\.1:\d+: cannot listen on 127\.0\.0\.1:\d+: .*EADDRINUSE/,
    );
    assert.match(
      start('--experimental', '--metrics-addr', '192.0.2.1:9323'),
      /metrics-addr 192\.0\.2\.1:9323: cannot listen/,
    );
    assert.match(start('--experimental', '--metrics-addr', '9323'), /metrics-addr/);
    assert.match(start('--metrics-addr', '127.0.0.1:9323'), /experimental/);
  } finally {
    taken.close();
    await rm(dir, { recursive: true, force: true });
  }
});
