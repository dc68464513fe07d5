/** Health checks: what they show, what they count, and how they follow the life of their container. */
import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { SeededRegistry } from '../support/busybox-image.js';
import { Cleanup } from '../support/cleanup.js';
import { docker } from '../support/cli.js';
import { removeContainers } from '../support/container-removal.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { call, callJson, jsonLines, open } from '../support/http.js';
import { buildImage, buildLayer, busyboxEntries, pushImage } from '../support/image-builder.js';
import { waitFor } from '../support/wait.js';

interface Health {
  readonly Status: string;
  readonly FailingStreak: number;
  readonly Log: readonly {
    readonly Start: string;
    readonly End: string;
    readonly ExitCode: number;
    readonly Output: string;
  }[];
}

interface State {
  readonly Pid: number;
  readonly Running: boolean;
  readonly Health?: Health;
}

const cleanup = new Cleanup();
let engine: Engine;
let registry: SeededRegistry;
let image: string;

before(async () => {
  ({ engine, registry, image } = await startEngineWithRegistry(cleanup));
});

after(() => cleanup.run());

afterEach(() => removeContainers(engine));

function ok(...args: string[]): Promise<string> {
  return engineOk(engine, args);
}

async function state(name: string): Promise<State> {
  return (await callJson<{ State: State }>(engine.socketPath, 'GET', `/containers/${name}/json`)).State;
}

async function health(name: string): Promise<Health> {
  const { Health: found } = await state(name);
  assert.ok(found, `${name} has a health`);
  return found;
}

function until(name: string, status: string): Promise<Health> {
  return waitFor(`${name} to be ${status}`, async () => {
    const found = await health(name);
    return found.Status === status && found;
  });
}

/** The processes of a container, as `ps` lists them. */
async function processes(name: string): Promise<string> {
  return (await call(engine.socketPath, 'GET', `/containers/${name}/top?ps_args=-eo+pid,args`)).text;
}

/** The containers that run and have this health. */
async function namesOf(status: string): Promise<readonly string[]> {
  const filters = encodeURIComponent(JSON.stringify({ health: [status] }));
  const path = `/containers/json?filters=${filters}`;
  return (await callJson<readonly { Names: readonly string[] }[]>(engine.socketPath, 'GET', path)).flatMap(
    ({ Names }) => Names,
  );
}

/** Starts a container that sleeps, with the health check of the flags. */
function runChecked(name: string, ...flags: string[]): Promise<string> {
  return ok('run', '-d', '--name', name, ...flags, image, 'sleep', '1000');
}

test('a container becomes healthy: status, list, filters, log and events', async () => {
  const events = await open(
    engine.socketPath,
    'GET',
    `/events?filters=${encodeURIComponent(JSON.stringify({ type: { container: true } }))}`,
  );
  const actions: string[] = [];
  const reading = (async () => {
    for await (const { Action } of jsonLines<{ Action: string }>(events.message)) actions.push(Action);
  })().catch(() => undefined);
  await runChecked(
    'web',
    '--health-cmd',
    'echo looks good; test -e /tmp/up',
    '--health-interval',
    '300ms',
    '--health-start-period',
    '60s',
  );
  const first = await health('web');
  assert.equal(first.Status, 'starting');
  assert.equal(first.FailingStreak, 0);
  assert.match(await ok('ps', '--format', '{{.Status}}'), /^Up .* \(health: starting\)$/);
  assert.deepEqual(await namesOf('starting'), ['/web']);
  assert.deepEqual(await namesOf('healthy'), []);
  await waitFor('a failed probe', async () => (await health('web')).Log.length > 0);
  assert.equal((await health('web')).FailingStreak, 0, 'failures within the start period do not count');
  await ok('exec', 'web', 'touch', '/tmp/up');
  const { Log, FailingStreak } = await until('web', 'healthy');
  assert.equal(FailingStreak, 0);
  const last = Log.at(-1);
  assert.equal(last?.ExitCode, 0);
  assert.equal(last?.Output, 'looks good\n');
  assert.ok(Date.parse(last?.End ?? '') >= Date.parse(last?.Start ?? ''));
  assert.match(await ok('ps', '--format', '{{.Status}}'), /^Up .* \(healthy\)$/);
  assert.deepEqual(await namesOf('healthy'), ['/web']);
  await waitFor('a full log', async () => (await health('web')).Log.length === 5);
  // The next probe may be under way, but between two of them there is none.
  const execs = async (): Promise<unknown> =>
    (await callJson<{ ExecIDs: unknown }>(engine.socketPath, 'GET', '/containers/web/json')).ExecIDs;
  await waitFor('a moment without a probe', async () => (await execs()) === null);
  await waitFor('the event', () => actions.includes('health_status: healthy'));
  const command = '/bin/sh -c echo looks good; test -e /tmp/up';
  assert.ok(
    actions.includes(`exec_create: ${command}`) &&
      actions.includes(`exec_start: ${command}`) &&
      actions.includes('exec_die'),
    actions.join('\n'),
  );
  assert.equal(actions.filter((action) => action.startsWith('health_status')).length, 1, 'only changes are events');
  events.close();
  await reading;
});

test('a container becomes unhealthy after its retries, and healthy again', async () => {
  await runChecked(
    'web',
    '--health-cmd',
    'test -e /tmp/up || { echo down; exit 7; }',
    '--health-interval',
    '200ms',
    '--health-retries',
    '2',
  );
  const { FailingStreak, Log } = await until('web', 'unhealthy');
  assert.ok(FailingStreak >= 2);
  assert.deepEqual({ exit: Log[0]?.ExitCode, output: Log[0]?.Output }, { exit: 7, output: 'down\n' });
  assert.match(await ok('ps', '--format', '{{.Status}}'), /^Up .* \(unhealthy\)$/);
  await ok('exec', 'web', 'touch', '/tmp/up');
  assert.equal((await until('web', 'healthy')).FailingStreak, 0);
});

test('long output is cut after 4096 bytes and does not hold up the probe', async () => {
  await runChecked('web', '--health-cmd', 'yes x | head -c 300000', '--health-interval', '200ms');
  const { Log } = await until('web', 'healthy');
  assert.equal(Log.at(-1)?.Output, `${'x\n'.repeat(2048)}...`);
});

test('a probe that takes too long is ended and counts as a failure', async () => {
  await runChecked(
    'web',
    '--health-cmd',
    'echo begun; sleep 500',
    '--health-interval',
    '100ms',
    '--health-timeout',
    '300ms',
    '--health-retries',
    '1',
  );
  const { Log } = await until('web', 'unhealthy');
  assert.equal(Log[0]?.ExitCode, -1);
  assert.match(Log[0]?.Output ?? '', /^Health check exceeded timeout \(300ms\)(: begun\n)?$/);
  await ok('pause', 'web');
  await ok('unpause', 'web');
  await waitFor(
    'the probes to be gone',
    async () => !(await processes('web')).includes('echo begun; sleep 500'),
    15_000,
    5,
  );
});

test('a probe whose program is missing is unhealthy', async () => {
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create?name=web', {
    json: {
      Image: image,
      Cmd: ['sleep', '1000'],
      Healthcheck: { Test: ['CMD', '/no/such/program'], Interval: 200_000_000, Retries: 1 },
    },
  });
  assert.equal((await state(Id)).Health, undefined, 'no health before the first start');
  await ok('start', 'web');
  const { Log } = await until('web', 'unhealthy');
  assert.notEqual(Log[0]?.ExitCode, 0);
  assert.match(Log[0]?.Output ?? '', /no such file or directory/);
});

test('the probe runs as the user, in the directory and with the environment of the container', async () => {
  await runChecked(
    'web',
    '--user',
    'nobody',
    '--workdir',
    '/var',
    '--env',
    'COLOUR=green',
    '--health-cmd',
    'echo $(id -u) $(pwd) $COLOUR',
    '--health-interval',
    '200ms',
  );
  assert.equal((await until('web', 'healthy')).Log[0]?.Output, '65534 /var green\n');
});

test('a pause and a stop end the probing, a start begins it anew', async () => {
  await runChecked('web', '--health-cmd', 'true', '--health-interval', '200ms');
  await until('web', 'healthy');
  await ok('pause', 'web');
  const paused = await health('web');
  assert.equal(paused.Status, 'unhealthy');
  assert.match(await ok('ps', '--format', '{{.Status}}'), /^Up .* \(Paused\)$/);
  await sleep(500);
  assert.deepEqual(await health('web'), paused, 'nothing is probed meanwhile');
  await ok('unpause', 'web');
  await until('web', 'healthy');
  await ok('stop', '-t', '0', 'web');
  const stopped = await health('web');
  assert.equal(stopped.Status, 'unhealthy');
  assert.ok(stopped.Log.length > 0, 'the log stays');
  await sleep(500);
  assert.equal((await health('web')).Log.at(-1)?.Start, stopped.Log.at(-1)?.Start);
  await ok('start', 'web');
  assert.equal((await health('web')).Status, 'starting');
  await until('web', 'healthy');
});

test('a health check of the image is inherited field by field and can be switched off', async () => {
  const checked = buildImage({
    layers: [buildLayer(busyboxEntries())],
    config: {
      Cmd: ['sleep', '1000'],
      Shell: ['/bin/busybox', 'sh', '-ec'],
      Healthcheck: { Test: ['CMD-SHELL', 'echo from the image $0'], Interval: 3_600_000_000_000, Retries: 9 },
    },
  });
  const reference = `${registry.host}/test/checked:1`;
  await pushImage(registry.url, 'test/checked', '1', checked);
  await ok('pull', '-q', reference);
  await ok('run', '-d', '--name', 'inherited', '--health-interval', '200ms', reference);
  assert.match((await until('inherited', 'healthy')).Log[0]?.Output ?? '', /^from the image/);
  assert.deepEqual(JSON.parse(await ok('inspect', '--format', '{{json .Config.Healthcheck}}', 'inherited')), {
    Test: ['CMD-SHELL', 'echo from the image $0'],
    Interval: 200_000_000,
    Retries: 9,
  });
  await ok('run', '-d', '--name', 'off', '--no-healthcheck', reference);
  assert.equal((await state('off')).Health, undefined);
  assert.deepEqual(await namesOf('none'), ['/off']);
  assert.match(await ok('ps', '--filter', 'name=off', '--format', '{{.Status}}'), /^Up [^()]*$/);
});

test('the start interval holds until the start period is over or the container is healthy', async (t) => {
  if (engine.name === 'dockerd') return t.skip('the start interval came with API 1.44');
  await runChecked(
    'web',
    '--health-cmd',
    'test -e /tmp/up',
    '--health-interval',
    '1h',
    '--health-start-interval',
    '200ms',
    '--health-start-period',
    '1h',
  );
  await waitFor('several probes', async () => (await health('web')).Log.length >= 3);
  await ok('exec', 'web', 'touch', '/tmp/up');
  const { Log } = await until('web', 'healthy');
  await sleep(700);
  assert.equal((await health('web')).Log.at(-1)?.Start, Log.at(-1)?.Start, 'the next one comes after the interval');
});

test('impossible health checks are refused and create nothing', async () => {
  const refused = async (healthcheck: unknown, message: RegExp): Promise<void> => {
    const reply = await call(engine.socketPath, 'POST', '/containers/create?name=bad', {
      json: { Image: image, Healthcheck: healthcheck },
    });
    assert.equal(reply.status, 400, reply.text);
    assert.match(reply.text, message);
  };
  await refused({ Test: ['CMD', 'true'], Interval: 10 }, /Interval in Healthcheck cannot be less than 1ms/);
  await refused({ Test: ['CMD', 'true'], Timeout: -1 }, /Timeout in Healthcheck cannot be less than 1ms/);
  await refused({ Test: ['CMD', 'true'], StartPeriod: 999 }, /StartPeriod in Healthcheck cannot be less than 1ms/);
  await refused({ Test: ['CMD', 'true'], Retries: -1 }, /Retries in Healthcheck cannot be negative/);
  // The original of this age answers 500 to both.
  if (engine.name === 'engined') {
    await refused({ Test: 'true' }, /Test/);
    const filter = await call(
      engine.socketPath,
      'GET',
      `/containers/json?filters=${encodeURIComponent('{"health":["fine"]}')}`,
    );
    assert.equal(filter.status, 400, filter.text);
  }
  assert.equal(await ok('ps', '-aq'), '');
});

test('pauses at any moment of a probe do not block', async (t) => {
  if (engine.name === 'dockerd') return t.skip('there it may');
  await runChecked('web', '--health-cmd', 'true', '--health-interval', '10ms');
  for (let round = 0; round < 12; round++) {
    await sleep((round * 17) % 60);
    for (const command of ['pause', 'unpause'])
      assert.equal((await call(engine.socketPath, 'POST', `/containers/web/${command}`)).status, 204);
  }
  await until('web', 'healthy');
});

test('a removal in the middle of a probe does not wait for it', async () => {
  await runChecked('web', '--health-cmd', 'sleep 300', '--health-interval', '50ms', '--health-timeout', '200s');
  await waitFor('a probe', async () => (await processes('web')).includes('sleep 300'));
  assert.equal((await docker(engine, ['rm', '-f', 'web'], { timeoutMs: 30_000 })).status, 0);
});

test('a container that lives through a crash of the daemon is probed on', async (t) => {
  if (engine.name === 'dockerd') return t.skip('its containers end with it');
  await runChecked('web', '--health-cmd', 'test ! -e /tmp/down', '--health-interval', '200ms', '--health-retries', '1');
  await until('web', 'healthy');
  const { Pid } = await state('web');
  // It is shown at once and written a moment later.
  const record = join(engine.dir, 'data', 'containers', await ok('inspect', '-f', '{{.Id}}', 'web'), 'container.json');
  const written = async (status: string): Promise<boolean> => (await readFile(record, 'utf8')).includes(`"${status}"`);
  await waitFor('the record', () => written('healthy'));
  await engine.stop('SIGKILL');
  await engine.start();
  const found = await state('web');
  assert.deepEqual({ pid: found.Pid, health: found.Health?.Status }, { pid: Pid, health: 'healthy' });
  await ok('exec', 'web', 'touch', '/tmp/down');
  await until('web', 'unhealthy');
  await waitFor('the record', () => written('unhealthy'));
  await engine.stop('SIGKILL');
  await engine.start();
  assert.equal((await health('web')).Status, 'unhealthy');
  await ok('exec', 'web', 'rm', '/tmp/down');
  await until('web', 'healthy');
});
