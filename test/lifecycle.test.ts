/**
 * Every command on a container, what it changes, what it refuses and which events tell of it. The same file passes
 * against the original (ENGINE_UNDER_TEST=dockerd), where it is not said otherwise.
 */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, afterEach, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { SeededRegistry } from './support/busybox-image.js';
import { Cleanup } from './support/cleanup.js';
import { CliSession, docker, dockerOk } from './support/cli.js';
import type { Engine } from './support/engine.js';
import { startEngineWithImage } from './support/engine-with-image.js';
import { call, callJson, open, type Reply } from './support/http.js';
import { buildImage, buildLayer, busyboxEntries, pushImage } from './support/image-builder.js';
import { waitFor } from './support/wait.js';

interface Inspection {
  readonly Id: string;
  readonly Name: string;
  readonly RestartCount: number;
  readonly State: {
    readonly Status: string;
    readonly Running: boolean;
    readonly Paused: boolean;
    readonly Restarting: boolean;
    readonly OOMKilled: boolean;
    readonly Dead: boolean;
    readonly Pid: number;
    readonly ExitCode: number;
    readonly Error: string;
    readonly StartedAt: string;
    readonly FinishedAt: string;
  };
  readonly HostConfig: Readonly<Record<string, unknown>>;
}

interface Event {
  readonly Type: string;
  readonly Action: string;
  readonly Actor: { readonly ID: string; readonly Attributes: Readonly<Record<string, string>> };
}

const TRAP = 'trap "exit 7" TERM; trap "exit 8" USR1; while :; do sleep 0.05; done';
const cleanup = new Cleanup();
let engine: Engine;
let registry: SeededRegistry;
let image: string;

before(async () => {
  ({ engine, registry, image } = await startEngineWithImage(cleanup));
});

after(() => cleanup.run());

afterEach(async () => {
  const containers = await callJson<{ Id: string }[]>(engine.socketPath, 'GET', '/containers/json?all=1');
  for (const { Id } of containers) await callJson(engine.socketPath, 'DELETE', `/containers/${Id}?force=1&v=1`);
});

function ok(...args: string[]): Promise<string> {
  return dockerOk(engine, args);
}

/** Starts a container in the background. */
function runDetached(name: string, command: string, ...flags: string[]): Promise<string> {
  return ok('run', '-d', '--name', name, ...flags, image, 'sh', '-c', command);
}

/** Resolves when the shell of TRAP has set its traps. */
async function runTrapping(name: string, ...flags: string[]): Promise<string> {
  const id = await runDetached(name, TRAP.replace('while', 'echo ready; while'), ...flags);
  await waitFor('the traps', async () => (await ok('logs', name)) === 'ready');
  return id;
}

function inspect(name: string): Promise<Inspection> {
  return callJson<Inspection>(engine.socketPath, 'GET', `/containers/${name}/json`);
}

function until(name: string, what: string, probe: (found: Inspection) => boolean): Promise<Inspection> {
  return waitFor(`${name}: ${what}`, async () => {
    const found = await inspect(name);
    return probe(found) && found;
  });
}

function post(path: string, json?: unknown): Promise<Reply> {
  return call(engine.socketPath, 'POST', path, json === undefined ? {} : { json });
}

async function refused(reply: Promise<Reply>, status: number, message: RegExp): Promise<void> {
  const { status: got, text } = await reply;
  assert.equal(got, status, text);
  assert.match((JSON.parse(text) as { message: string }).message, message);
}

/** What happened to containers since a time, as `action attribute=value`, in order. */
async function events(since: number, id: string, ...attributes: string[]): Promise<string[]> {
  const text = (await call(engine.socketPath, 'GET', `/events?since=${since}&until=${(Date.now() / 1000).toFixed(3)}&filters=${encodeURIComponent(JSON.stringify({ container: [id] }))}`)).text;
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as Event)
    .filter(({ Type }) => Type === 'container')
    .map(({ Action, Actor }) => [Action, ...attributes.flatMap((name) => (Actor.Attributes[name] === undefined ? [] : [`${name}=${Actor.Attributes[name]}`]))].join(' '));
}

function now(): number {
  return Math.floor(Date.now() / 1000) - 1;
}

describe('stop', () => {
  test('the signal comes from the request, the container or the image, else it is TERM', async () => {
    const stopping = buildImage({ layers: [buildLayer(busyboxEntries())], config: { StopSignal: 'SIGUSR1' } });
    await pushImage(registry.url, 'test/stopping', '1', stopping);
    const reference = `${registry.host}/test/stopping:1`;
    await ok('pull', '-q', reference);
    await runTrapping('plain');
    await runTrapping('own', '--stop-signal', 'USR1');
    await ok('run', '-d', '--name', 'image', reference, 'sh', '-c', `echo ready; ${TRAP}`);
    await waitFor('the traps', async () => (await ok('logs', 'image')) === 'ready');
    await ok('stop', 'plain', 'own', 'image');
    assert.deepEqual(await Promise.all(['plain', 'own', 'image'].map(async (name) => (await inspect(name)).State.ExitCode)), [7, 8, 8]);
    if (engine.name === 'dockerd') return;
    await ok('start', 'plain');
    await waitFor('the traps', async () => (await ok('logs', 'plain')) === 'ready\nready');
    assert.equal((await post('/v1.42/containers/plain/stop?signal=SIGUSR1')).status, 204);
    assert.equal((await inspect('plain')).State.ExitCode, 8);
    await refused(post('/containers/plain/stop?signal=NOPE'), 400, /invalid signal: NOPE/i);
  });

  test('after the grace it is KILL; the events say so', async () => {
    const since = now();
    const id = await runDetached('deaf', 'trap "" TERM; while :; do sleep 0.05; done', '--stop-timeout', '1');
    await sleep(300);
    const begun = Date.now();
    assert.equal((await post('/containers/deaf/stop')).status, 204);
    assert.ok(Date.now() - begun >= 900, 'it has its second');
    assert.equal((await inspect('deaf')).State.ExitCode, 137);
    assert.equal((await post('/containers/deaf/stop')).status, 304);
    const told = await events(since, id, 'signal', 'exitCode');
    assert.deepEqual(told.slice(-4), ['kill signal=15', 'kill signal=9', 'die exitCode=137', 'stop']);
  });

  test('a negative timeout waits for ever, and another stop brings it forward', async () => {
    await runDetached('deaf', 'trap "" TERM; while :; do sleep 0.05; done');
    await sleep(300);
    let answered = false;
    const patient = post('/containers/deaf/stop?t=-1').then((reply) => ((answered = true), reply));
    await sleep(700);
    assert.equal(answered, false);
    assert.equal((await post('/containers/deaf/stop?t=0')).status, 204);
    assert.ok([204, 304].includes((await patient).status));
    assert.equal((await inspect('deaf')).State.ExitCode, 137);
  });

  test('a paused container can be stopped', async () => {
    await runTrapping('web');
    await ok('pause', 'web');
    await ok('stop', '-t', '5', 'web');
    const { State } = await inspect('web');
    assert.deepEqual({ status: State.Status, code: State.ExitCode, paused: State.Paused }, { status: 'exited', code: 7, paused: false });
  });
});

describe('restart', () => {
  test('of a running and of a stopped container, with its events', async () => {
    const since = now();
    const id = await runTrapping('web');
    const before = await inspect('web');
    await ok('restart', '-t', '5', 'web');
    const running = await inspect('web');
    assert.equal(running.State.Running, true);
    assert.notEqual(running.State.Pid, before.State.Pid);
    assert.ok(running.State.StartedAt > before.State.StartedAt);
    assert.equal(running.RestartCount, 0);
    await waitFor('the events', async () => (await events(since, id)).includes('restart'));
    assert.deepEqual((await events(since, id, 'signal', 'exitCode')).filter((event) => !event.startsWith('attach')), ['create', 'start', 'kill signal=15', 'die exitCode=7', 'stop', 'start', 'restart']);
    await ok('stop', '-t', '0', 'web');
    await ok('restart', 'web');
    assert.equal((await inspect('web')).State.Running, true);
  });

  test('does not remove a container that removes itself', async () => {
    await runTrapping('web', '--rm');
    await ok('restart', '-t', '0', 'web');
    assert.equal((await inspect('web')).State.Running, true);
    await ok('stop', '-t', '0', 'web');
    await waitFor('the removal', async () => (await call(engine.socketPath, 'GET', '/containers/web/json')).status === 404);
  });

  test('of a container whose command is gone fails and says why', async () => {
    await ok('create', '--name', 'web', image, '/no/such/command');
    const reply = await post('/containers/web/restart');
    assert.ok(reply.status >= 400, reply.text);
    assert.match(reply.text, /no such file or directory/);
  });
});

describe('kill', () => {
  test('signals by name and number, with and without SIG', async () => {
    for (const signal of ['USR1', 'SIGUSR1', 'sigusr1', '10']) {
      await runTrapping('web');
      await ok('kill', '--signal', signal, 'web');
      await until('web', 'the end', ({ State }) => !State.Running);
      assert.equal((await inspect('web')).State.ExitCode, 8, signal);
      await ok('rm', 'web');
    }
    await runTrapping('web');
    assert.equal((await post('/containers/web/kill?signal=RTMIN%2B3')).status, 204);
    for (const signal of ['NOPE', 'SIG', '9.5', ...(engine.name === 'engined' ? ['-1', '65'] : [])]) await refused(post(`/containers/web/kill?signal=${signal}`), 400, /invalid signal/i);
    assert.equal((await post('/containers/web/kill')).status, 204);
    assert.equal((await inspect('web')).State.Running, false, 'SIGKILL is answered when it has ended');
    await refused(post('/containers/web/kill'), 409, /cannot kill container: web: container [0-9a-f]{64} is not running|is not running/i);
  });
});

describe('pause', () => {
  test('freezes, thaws and refuses what cannot be', async () => {
    await runDetached('web', 'i=0; while :; do i=$((i+1)); echo $i > /tmp/n; done');
    const since = now();
    await ok('pause', 'web');
    const { State, Id } = await inspect('web');
    assert.deepEqual({ status: State.Status, running: State.Running, paused: State.Paused }, { status: 'paused', running: true, paused: true });
    const cpu = (): string => readFileSync(`/proc/${State.Pid}/stat`, 'utf8').split(' ').slice(13, 15).join(' ');
    const frozen = cpu();
    await sleep(300);
    assert.equal(cpu(), frozen);
    await refused(post('/containers/web/pause'), 409, /is already paused/);
    await refused(post('/containers/web/start'), 409, /cannot start a paused container, try unpause instead/);
    await refused(post('/containers/web/exec', { Cmd: ['true'] }), 409, /is paused, unpause the container before exec/);
    await refused(call(engine.socketPath, 'DELETE', '/containers/web'), 409, /paused/);
    assert.equal(await ok('ps', '--filter', 'status=paused', '--format', '{{.Names}} {{.Status}}').then((line) => line.replace(/Up .* \(/, '(')), 'web (Paused)');
    await ok('unpause', 'web');
    await refused(post('/containers/web/unpause'), 500, /is not paused/);
    assert.equal((await inspect('web')).State.Status, 'running');
    assert.deepEqual(await events(since, Id).then((told) => told.filter((event) => event.includes('pause'))), ['pause', 'unpause']);
    await ok('pause', 'web');
    await ok('rm', '-f', 'web');
    await ok('create', '--name', 'idle', image);
    await refused(post('/containers/idle/pause'), 409, /is not running/);
  });
});

describe('rename', () => {
  test('changes the name everywhere, in networks too', async () => {
    await ok('network', 'create', 'meadow');
    try {
      const since = now();
      const id = await runDetached('old', 'sleep 1000', '--network', 'meadow');
      await runDetached('asker', 'sleep 1000', '--network', 'meadow');
      await ok('exec', 'asker', 'ping', '-c1', '-w5', 'old');
      await ok('rename', 'old', 'new');
      assert.equal((await inspect('new')).Name, '/new');
      assert.equal((await call(engine.socketPath, 'GET', '/containers/old/json')).status, 404);
      await ok('exec', 'asker', 'ping', '-c1', '-w5', 'new');
      assert.notEqual((await docker(engine, ['exec', 'asker', 'ping', '-c1', '-w5', 'old'])).status, 0, 'the old name is gone');
      assert.ok((await events(since, id, 'oldName', 'name')).includes('rename oldName=/old name=new'));
      await runDetached('old', 'true');
      await ok('rm', '-f', 'old');
      await ok('restart', '-t', '0', 'new');
      await ok('exec', 'asker', 'ping', '-c1', '-w5', 'new');
      await ok('rm', '-f', 'new', 'asker');
    } finally {
      await ok('network', 'rm', 'meadow').catch(() => undefined);
    }
  });

  test('refuses names that are taken, bad, empty or the same', async () => {
    await ok('create', '--name', 'one', image);
    const two = await ok('create', '--name', 'two', image);
    await refused(post('/containers/one/rename?name=two'), 409, new RegExp(`Error when allocating new name: Conflict. The container name "/two" is already in use by container "?${two}"?. You have to remove \\(or rename\\) that container to be able to reuse that name.`));
    await refused(post('/containers/one/rename?name='), 400, /Neither old nor new names may be empty/);
    await refused(post('/containers/one/rename?name=one'), 400, /Renaming a container with the same name as its current name/);
    await refused(post('/containers/one/rename?name=/one'), 400, /Renaming a container with the same name as its current name/);
    await refused(post('/containers/one/rename?name=a%20b'), 400, /Invalid container name \(\/?a b\)/);
    await refused(post('/containers/nobody/rename?name=x'), 404, /No such container: nobody/);
    assert.deepEqual((await ok('ps', '-a', '--format', '{{.Names}}')).split('\n').toSorted(), ['one', 'two']);
    await ok('rename', 'one', 'three');
    await ok('rename', 'two', 'one');
  });
});

describe('update', () => {
  const cgroupFile = (pid: number, controller: string, file: string): string => {
    const path = readFileSync(`/proc/${pid}/cgroup`, 'utf8').split('\n').find((line) => line.split(':')[1]?.split(',').includes(controller))?.split(':')[2];
    return readFileSync(join('/sys/fs/cgroup', controller, path ?? '', file), 'utf8').trim();
  };

  test('limits of a running container change at once and stay for the next start', async (t) => {
    if (!existsSync('/sys/fs/cgroup/memory/memory.limit_in_bytes')) return t.skip('looks into cgroup v1');
    const since = now();
    const id = await runDetached('web', 'sleep 1000', '--memory', '64m');
    await ok('update', '--memory', '96m', '--memory-swap', '200m', '--cpu-shares', '512', '--pids-limit', '50', '--cpuset-cpus', '0', '--cpu-quota', '30000', '--cpu-period', '100000', 'web');
    const check = async (): Promise<void> => {
      const { State, HostConfig } = await inspect('web');
      assert.deepEqual([HostConfig['Memory'], HostConfig['MemorySwap'], HostConfig['CpuShares'], HostConfig['PidsLimit'], HostConfig['CpusetCpus']], [96 << 20, 200 << 20, 512, 50, '0']);
      assert.equal(cgroupFile(State.Pid, 'memory', 'memory.limit_in_bytes'), String(96 << 20));
      assert.equal(cgroupFile(State.Pid, 'memory', 'memory.memsw.limit_in_bytes'), String(200 << 20));
      assert.equal(cgroupFile(State.Pid, 'cpu', 'cpu.shares'), '512');
      assert.equal(cgroupFile(State.Pid, 'pids', 'pids.max'), '50');
      assert.equal(cgroupFile(State.Pid, 'cpu', 'cpu.cfs_quota_us'), '30000');
      assert.equal(cgroupFile(State.Pid, 'cpuset', 'cpuset.cpus'), '0');
    };
    await check();
    // A limit changed alone leaves the policy as it is.
    await ok('update', '--restart', 'unless-stopped', 'web');
    await ok('update', '--cpu-shares', '512', 'web');
    assert.deepEqual((await inspect('web')).HostConfig['RestartPolicy'], { Name: 'unless-stopped', MaximumRetryCount: 0 });
    await ok('restart', '-t', '0', 'web');
    await check();
    assert.ok((await events(since, id)).includes('update'));
    await ok('stop', '-t', '0', 'web');
    await ok('update', '--memory', '80m', 'web');
    await ok('start', 'web');
    assert.equal(cgroupFile((await inspect('web')).State.Pid, 'memory', 'memory.limit_in_bytes'), String(80 << 20));
  });

  test('what cannot be is refused and changes nothing', async () => {
    await runDetached('web', 'sleep 1000', '--memory', '64m', '--memory-swap', '64m');
    const before = (await inspect('web')).HostConfig;
    await refused(post('/containers/web/update', { Memory: 128 << 20 }), 409, /Cannot update container [0-9a-f]{64}: .*Memory limit should be smaller than already set memoryswap limit, update the memoryswap at the same time/);
    await refused(post('/containers/web/update', { Memory: 1000 }), 400, /Minimum memory limit allowed is \d+MB/i);
    await refused(post('/containers/web/update', { CpusetCpus: '400' }), 400, /CPUs|cpus/);
    await refused(post('/containers/web/update', { RestartPolicy: { Name: 'sometimes' } }), 400, /restart policy/);
    await refused(post('/containers/web/update', { RestartPolicy: { Name: 'always', MaximumRetryCount: 4 } }), 400, /maximum retry count/);
    assert.deepEqual((await inspect('web')).HostConfig, before);
    await runDetached('half', 'sleep 1000', '--cpus', '0.5');
    await refused(post('/containers/half/update', { CpuQuota: 20_000 }), 409, /Conflicting options: CPU Quota cannot be updated as NanoCPUs has already been set/);
    await runDetached('fleeting', 'sleep 1000', '--rm');
    await refused(post('/containers/fleeting/update', { RestartPolicy: { Name: 'always' } }), 409, /Restart policy cannot be updated because AutoRemove is enabled for the container/);
    await refused(post('/containers/nobody/update', { CpuShares: 5 }), 404, /No such container/);
  });

  test('a restart policy given later holds', async () => {
    await runTrapping('web');
    await ok('update', '--restart', 'on-failure:1', 'web');
    assert.deepEqual((await inspect('web')).HostConfig['RestartPolicy'], { Name: 'on-failure', MaximumRetryCount: 1 });
    const crash = async (): Promise<void> => {
      const { State } = await until('web', 'a process', ({ State: { Pid } }) => Pid > 1);
      process.kill(State.Pid, 'SIGKILL');
    };
    await crash();
    await until('web', 'one restart', ({ RestartCount, State: { Running, Restarting } }) => RestartCount === 1 && Running && !Restarting);
    await crash();
    await until('web', 'the end', ({ State: { Running } }) => !Running);
    assert.equal((await inspect('web')).RestartCount, 1);
  });
});

describe('restart policies', () => {
  test('on-failure counts its tries, and a success ends them', async () => {
    await runDetached('failing', 'exit 3', '--restart', 'on-failure:2');
    const found = await until('failing', 'the last try', ({ RestartCount, State }) => RestartCount === 2 && State.Status === 'exited');
    assert.equal(found.State.ExitCode, 3);
    await runDetached('fine', 'exit 0', '--restart', 'on-failure:2');
    await until('fine', 'the end', ({ State }) => State.Status === 'exited');
    await sleep(300);
    assert.equal((await inspect('fine')).RestartCount, 0);
    await ok('start', 'failing');
    await until('failing', 'the count begins anew', ({ RestartCount, State }) => RestartCount === 2 && State.Status === 'exited');
  });

  test('always comes back after ever longer pauses, until it is stopped', async () => {
    const since = now();
    const id = await runDetached('web', 'exit 1', '--restart', 'always');
    await until('web', 'several restarts', ({ RestartCount }) => RestartCount >= 4);
    const { State } = await until('web', 'a pause', ({ State: { Restarting } }) => Restarting);
    assert.deepEqual({ status: State.Status, running: State.Running, pid: State.Pid, code: State.ExitCode }, { status: 'restarting', running: true, pid: 0, code: 1 });
    assert.match(await ok('ps', '--format', '{{.Status}}'), /^Restarting \(1\) .* ago$/);
    await refused(post('/containers/web/exec', { Cmd: ['true'] }), 409, /is restarting, wait until the container is running/);
    await refused(call(engine.socketPath, 'DELETE', '/containers/web'), 409, /restarting/);
    await ok('stop', 'web');
    const stopped = await inspect('web');
    assert.equal(stopped.State.Status, 'exited');
    await sleep(2000);
    assert.equal((await inspect('web')).RestartCount, stopped.RestartCount);
    const starts = (await call(engine.socketPath, 'GET', `/events?since=${since}&until=${(Date.now() / 1000).toFixed(3)}&filters=${encodeURIComponent(JSON.stringify({ container: [id], event: ['start', 'die'] }))}`)).text
      .trim().split('\n').map((line) => JSON.parse(line) as { Action: string; timeNano: number });
    const pauses = starts.flatMap((event, index) => (event.Action === 'start' && index > 0 ? [(event.timeNano - (starts[index - 1]?.timeNano ?? 0)) / 1e6] : []));
    // Its history is too short for this.
    if (engine.name === 'dockerd') return;
    // Only that they grow: what else the host does is added to each.
    for (const [index, least] of [100, 200, 400, 800].entries()) assert.ok((pauses[index] ?? 0) >= least * 0.95, `pauses of ${pauses.join(', ')} ms`);
  });

  test('a waiter hears of the first exit, though the container comes back', async () => {
    await ok('create', '--name', 'web', '--restart', 'always', image, 'sh', '-c', 'exit 5');
    const waiting = callJson<{ StatusCode: number }>(engine.socketPath, 'POST', '/containers/web/wait?condition=next-exit');
    await ok('start', 'web');
    assert.equal((await waiting).StatusCode, 5);
    await ok('rm', '-f', 'web');
  });

  test('after a crash of the daemon: always and on-failure go on, unless-stopped remembers a stop', async (t) => {
    if (engine.name === 'dockerd') return t.skip('its containers end with it');
    for (const [name, policy] of [['always', 'always'], ['unless', 'unless-stopped'], ['unless-down', 'unless-stopped'], ['no', 'no']] as const) await runTrapping(name, '--restart', policy);
    await runDetached('failed', 'echo begun; sleep 1; exit 4', '--restart', 'on-failure');
    await ok('stop', '-t', '0', 'unless-down');
    await engine.stop('SIGKILL');
    // While the daemon is away they end.
    await sleep(1300);
    await engine.start();
    await until('failed', 'another try', ({ RestartCount }) => RestartCount >= 1);
    const states = async (): Promise<Record<string, string>> => Object.fromEntries(await Promise.all(['always', 'unless', 'unless-down', 'no'].map(async (name) => [name, (await inspect(name)).State.Status] as const)));
    assert.deepEqual(await states(), { always: 'running', unless: 'running', 'unless-down': 'exited', no: 'running' });
    await ok('stop', '-t', '0', 'always');
    assert.equal(await engine.stop('SIGTERM'), 0);
    await engine.start();
    await until('always', 'its start', ({ State }) => State.Running);
    await until('unless', 'its start', ({ State }) => State.Running);
    assert.deepEqual(await states(), { always: 'running', unless: 'running', 'unless-down': 'exited', no: 'exited' });
  });
});

describe('wait', () => {
  test('each condition, and the exit of a container that is gone', async () => {
    const { Id: id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create?name=web', { json: { Image: image, Cmd: ['sh', '-c', 'exit 9'] } });
    const wait = async (name: string, condition: string): Promise<number> => (await callJson<{ StatusCode: number }>(engine.socketPath, 'POST', `/containers/${name}/wait?condition=${condition}`)).StatusCode;
    assert.equal(await wait('web', ''), 0);
    const waits = ['next-exit', 'removed'].map((condition) => wait('web', condition));
    let removed = false;
    void waits[1]?.then(() => (removed = true));
    await ok('start', 'web');
    assert.equal(await waits[0], 9);
    assert.equal(await wait('web', 'not-running'), 9);
    await sleep(200);
    assert.equal(removed, false);
    await ok('rm', 'web');
    assert.equal(await waits[1], 9);
    await refused(post('/containers/web/wait'), 404, /No such container: web/);
    await ok('create', '--name', 'other', image);
    if (engine.name === 'dockerd') return;
    await refused(post('/containers/other/wait?condition=whenever'), 400, /invalid condition: "whenever"/);
    for (const condition of ['not-running', 'next-exit', 'removed']) assert.equal(await wait(id, condition), 9);
  });

  test('the headers come before the end', async () => {
    await runDetached('web', 'sleep 1000');
    const reply = await open(engine.socketPath, 'POST', '/containers/web/wait');
    assert.equal(reply.status, 200);
    reply.close();
  });
});

describe('list', () => {
  test('filters, limits, sizes and order', async () => {
    const first = await ok('create', '--name', 'first', '--label', 'tier=back', '--label', 'old', '--expose', '70/udp', '-v', '/srv/data', image);
    await runDetached('second', 'echo 12345678 > /tmp/file; sleep 1000', '--label', 'tier=front', '-p', '127.0.0.1:0:80');
    await runDetached('third', 'exit 4', '--network', 'none');
    await until('third', 'the end', ({ State }) => !State.Running);
    const names = (...flags: string[]): Promise<string> => ok('ps', '--format', '{{.Names}}', ...flags).then((text) => text.split('\n').join(' '));
    assert.equal(await names('-a'), 'third second first');
    assert.equal(await names(), 'second');
    assert.equal(await names('-n', '2'), 'third second');
    assert.equal(await names('-l'), 'third');
    for (const [filter, wanted] of [
      ['id=' + first.slice(0, 12), 'first'],
      ['name=ir', 'third first'],
      ['name=^/second$', 'second'],
      ['label=tier', 'second first'],
      ['label=tier=back', 'first'],
      ['status=created', 'first'],
      ['status=exited', 'third'],
      ['exited=4', 'third'],
      ['exited=0', ''],
      ['before=second', 'first'],
      ['since=second', 'third'],
      ['ancestor=' + image, 'third second first'],
      ['ancestor=' + registry.image.id, 'third second first'],
      ['ancestor=nothing', ''],
      ['volume=/srv/data', 'first'],
      ['network=none', 'third'],
      ['network=bridge', 'second first'],
      ['publish=80', ''],
      ['publish=1024-65535', 'second'],
      ['publish=1024-65535/udp', ''],
      ['expose=80', 'second'],
      ['expose=60-90', 'second'],
      ['expose=70/udp', ''],
      ['is-task=false', 'third second first'],
      ['health=none', 'third second first'],
    ] as const) {
      const found = await names('-a', '--filter', filter);
      assert.equal(found, wanted, filter);
    }
    assert.equal(await names('-a', '--filter', 'label=tier', '--filter', 'label=old'), 'first');
    assert.equal(await names('-a', '--filter', 'status=created', '--filter', 'status=exited'), 'third first');
    for (const filter of ['{"nope":["1"]}', '{"status":["gone"]}', '{"exited":["x"]}', '{"is-task":["maybe"]}', 'nonsense']) {
      const { status, text } = await call(engine.socketPath, 'GET', `/containers/json?filters=${encodeURIComponent(filter)}`);
      assert.ok(status === 400 || (engine.name === 'dockerd' && status === 500), `${filter}: ${status} ${text}`);
    }
    // The original of this age has another status for it.
    for (const filter of engine.name === 'engined' ? ['before', 'since'] : []) await refused(call(engine.socketPath, 'GET', `/containers/json?filters=${encodeURIComponent(`{"${filter}":["nobody"]}`)}`), 404, /No such container: nobody/);
    interface Item { readonly Names: string[]; readonly SizeRw?: number; readonly SizeRootFs?: number; readonly Command: string; readonly State: string }
    const sized = (await callJson<Item[]>(engine.socketPath, 'GET', '/containers/json?size=1')).find(({ Names }) => Names[0] === '/second');
    assert.equal(sized?.SizeRw, 9);
    assert.ok((sized?.SizeRootFs ?? 0) > 500_000);
    const plain = await callJson<Item[]>(engine.socketPath, 'GET', '/containers/json');
    assert.deepEqual([plain[0]?.SizeRw, plain[0]?.SizeRootFs], [undefined, undefined]);
    const whole = await callJson<{ SizeRw?: number; SizeRootFs?: number }>(engine.socketPath, 'GET', '/containers/second/json?size=1');
    assert.deepEqual([whole.SizeRw, whole.SizeRootFs], [sized?.SizeRw, sized?.SizeRootFs]);
    assert.equal((await callJson<Item[]>(engine.socketPath, 'GET', '/containers/json?limit=-1&all=1')).length, 3);
  });
});

describe('top, changes, resize, prune', () => {
  test('top has the titles that ps was asked for', async () => {
    await runDetached('web', 'sleep 1000 & sleep 2000');
    await waitFor('both', async () => (await ok('top', 'web')).includes('sleep 2000'));
    const top = await callJson<{ Titles: string[]; Processes: string[][] }>(engine.socketPath, 'GET', '/containers/web/top');
    assert.deepEqual(top.Titles, ['UID', 'PID', 'PPID', 'C', 'STIME', 'TTY', 'TIME', 'CMD']);
    assert.ok(top.Processes.length >= 2 && top.Processes.every((row) => row.length === 8));
    assert.ok(top.Processes.some((row) => row.at(-1)?.includes('sleep 1000')));
    const chosen = await callJson<{ Titles: string[]; Processes: string[][] }>(engine.socketPath, 'GET', '/containers/web/top?ps_args=-o%20pid,args');
    assert.deepEqual(chosen.Titles, ['PID', 'COMMAND']);
    assert.ok((await call(engine.socketPath, 'GET', '/containers/web/top?ps_args=--nonsense')).status >= 400);
    const hidden = await call(engine.socketPath, 'GET', '/containers/web/top?ps_args=-o%20comm');
    assert.ok(hidden.status >= 400, hidden.text);
    await ok('stop', '-t', '0', 'web');
    const stopped = await call(engine.socketPath, 'GET', '/containers/web/top');
    assert.equal(stopped.status, 409, stopped.text);
    assert.match(stopped.text, /is not running/i);
  });

  test('changes: added, changed and deleted paths', async () => {
    await ok('run', '--name', 'web', image, 'sh', '-c', 'echo more >> /etc/motd; rm /bin/true; mkdir /srv; echo x > /srv/x; chmod 700 /home');
    const changes = await callJson<{ Path: string; Kind: number }[]>(engine.socketPath, 'GET', '/containers/web/changes');
    const found = Object.fromEntries(changes.map(({ Path, Kind }) => [Path, Kind]));
    for (const [path, kind] of [['/etc/motd', 0], ['/bin', 0], ['/bin/true', 2], ['/srv', 1], ['/srv/x', 1], ['/home', 0]] as const) assert.equal(found[path], kind, path);
    await ok('create', '--name', 'untouched', image);
    assert.equal((await call(engine.socketPath, 'GET', '/containers/untouched/changes')).text.trim(), 'null');
  });

  test('resize of a terminal', async () => {
    const since = now();
    const session = new CliSession(engine, ['run', '-it', '--name', 'web', image, 'sh'], { terminal: { rows: 24, columns: 80 } });
    await session.output(/# /);
    const { Id } = await inspect('web');
    assert.equal((await post('/containers/web/resize?h=41&w=99')).status, 200);
    await waitFor('the size', async () => {
      session.write('stty size\n');
      await sleep(100);
      return session.stdout.includes('41 99');
    });
    await refused(post('/containers/web/resize?h=x&w=1'), 400, /height|invalid syntax/);
    session.write('exit\n');
    await session.ended();
    assert.ok((await events(since, Id, 'height', 'width')).includes('resize height=41 width=99'));
    await refused(post('/containers/web/resize?h=1&w=1'), 409, /is not running/);
  });

  test('prune removes what does not run and fits the filters', async () => {
    await ok('create', '--name', 'kept', '--label', 'keep', image);
    await ok('create', '--name', 'marked', '--label', 'go=1', image);
    await ok('run', '--name', 'ended', image, 'sh', '-c', 'head -c 100000 /dev/zero > /tmp/f');
    await runDetached('running', 'sleep 1000');
    const prune = async (filters: unknown): Promise<string[]> => {
      const { ContainersDeleted, SpaceReclaimed } = await callJson<{ ContainersDeleted: string[] | null; SpaceReclaimed: number }>(engine.socketPath, 'POST', `/containers/prune?filters=${encodeURIComponent(JSON.stringify(filters))}`);
      assert.ok(SpaceReclaimed >= 0);
      return ContainersDeleted ?? [];
    };
    assert.deepEqual(await prune({ until: ['1h'] }), []);
    assert.equal((await prune({ label: ['go=1'] })).length, 1);
    const since = now();
    const { ContainersDeleted, SpaceReclaimed } = await callJson<{ ContainersDeleted: string[]; SpaceReclaimed: number }>(engine.socketPath, 'POST', `/containers/prune?filters=${encodeURIComponent('{"label!":["keep"]}')}`);
    assert.equal(ContainersDeleted.length, 1);
    assert.ok(SpaceReclaimed >= 100_000 && SpaceReclaimed < 300_000, String(SpaceReclaimed));
    assert.deepEqual((await ok('ps', '-a', '--format', '{{.Names}}')).split('\n').toSorted(), ['kept', 'running']);
    const told = (await call(engine.socketPath, 'GET', `/events?since=${since}&until=${(Date.now() / 1000).toFixed(3)}`)).text;
    assert.match(told, /"Action":"prune".*"reclaimed":"\d+"/);
    await refused(post(`/containers/prune?filters=${encodeURIComponent('{"nope":["1"]}')}`), 400, /invalid filter/i);
    assert.equal((await docker(engine, ['container', 'prune', '-f'])).status, 0);
    assert.equal(await ok('ps', '-a', '--format', '{{.Names}}'), 'running');
  });
});

describe('out of memory', () => {
  test('the flag, the event and the exit code', async () => {
    const since = now();
    const { status } = await docker(engine, ['run', '--name', 'eater', '--memory', '20m', '--memory-swap', '20m', image, 'sh', '-c', 'tail /dev/zero']);
    assert.equal(status, 137);
    const { State, Id } = await inspect('eater');
    assert.equal(State.OOMKilled, true);
    await waitFor('the event', async () => (await events(since, Id)).includes('oom'));
    await ok('start', 'eater').catch(() => undefined);
    await until('eater', 'the end', ({ State: again }) => !again.Running);
    await runDetached('fine', 'sleep 1000', '--memory', '20m');
    await ok('kill', 'fine');
    assert.equal((await inspect('fine')).State.OOMKilled, false);
  });

  test('the flag is taken back by the next start', async (t) => {
    if (engine.name === 'dockerd') return t.skip('that came with a later version');
    await ok('run', '-d', '--name', 'eater', '--memory', '20m', '--memory-swap', '20m', image, 'sh', '-c', 'if [ -e /tmp/again ]; then sleep 1000; fi; touch /tmp/again; tail /dev/zero');
    await until('eater', 'its end', ({ State }) => State.OOMKilled && !State.Running);
    await ok('start', 'eater');
    assert.equal((await inspect('eater')).State.OOMKilled, false);
  });
});
