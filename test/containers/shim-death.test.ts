/**
 * Commands to a container whose shim was killed just before: containerd cannot reach it any more and needs some time to
 * notice that and to kill the container. Each command must act as on a container that has ended. SHIM_DEATHS=20 makes
 * so many rounds of each command and delay. Then shims that live and never tell that their container has ended.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Cleanup } from '../support/cleanup.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import type { Engine } from '../support/engine.js';
import { call, callJson } from '../support/http.js';
import { containerCgroups, processesOf } from '../support/leftovers.js';
import { KERNEL_TELLS_EXITS } from '../support/kernel-tells-exits.js';
import { shimsOf } from '../support/shim-of.js';
import { killUnseen } from '../support/traced-process.js';
import { waitFor } from '../support/wait.js';

const ROUNDS = Number(process.env['SHIM_DEATHS'] ?? 1);
/** The command comes so long after the death of the shim. containerd notices it within some 50 ms. */
const DELAYS_MS = [0, 5, 40];
/** Those who wait for the runtime. */
const VICTIMS = ['shim', 'containerd'] as const;

const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  const dir = mkdtempSync(join(tmpdir(), 'failing-'));
  cleanup.add(async () => rmSync(dir, { recursive: true }));
  const failing = join(dir, 'failing');
  writeFileSync(failing, '#!/bin/sh\ncase " $* " in *" delete "*) exit 1;; esac\nexec runc "$@"\n', { mode: 0o755 });
  const args = ['--add-runtime', `failing=${failing}`];
  for (const name of ['daemon', 'starting', 'creating']) args.push('--add-runtime', `${name}=${join(dir, name)}`);
  for (const victim of VICTIMS) args.push('--add-runtime', `${victim}=${join(dir, victim)}`);
  ({ engine, image } = await startEngineWithImage(cleanup, engined({ args })));
  for (const victim of VICTIMS) writeFileSync(join(dir, victim), killing(victim), { mode: 0o755 });
  writeFileSync(join(dir, 'starting'), KILLING_AT_START, { mode: 0o755 });
  writeFileSync(join(dir, 'creating'), KILLING_AT_CREATION.replaceAll('DIR', engine.dir), { mode: 0o755 });
  writeFileSync(join(dir, 'daemon'), KILLING_DAEMON.replace('PIDFILE', join(engine.dir, 'engine.pid')), {
    mode: 0o755,
  });
});
after(() => cleanup.run());

/** A runtime in whose creations somebody else is killed, when there is nothing but the control groups. */
function killing(victim: (typeof VICTIMS)[number]): string {
  const pid = victim === 'shim' ? '$PPID' : `$(cat ${join(engine.dir, 'exec/supervisor/supervisor.pid')})`;
  return [
    '#!/bin/sh',
    'case " $* " in *" create "*) ;; *) exec runc "$@";; esac',
    'for id; do :; done',
    `for group in /sys/fs/cgroup /sys/fs/cgroup/*; do`,
    `  [ -e "$group/cgroup.procs" ] && mkdir -p "$group/${engine.mark}/$id"`,
    'done',
    `kill -KILL ${pid}`,
    'exec sleep 1000',
  ].join('\n');
}

/** A runtime that kills the shim when a task is to be started for the first time. */
const KILLING_AT_START = [
  '#!/bin/sh',
  'case " $* " in *" start "*) [ -e "$0.once" ] || { touch "$0.once"; kill -KILL $PPID; exit 1; };; esac',
  'exec runc "$@"',
].join('\n');

/** A runtime that ends its first creation with the end of the daemon, of containerd, and of what it has made. */
const KILLING_AT_CREATION = [
  '#!/bin/sh',
  'case " $* " in *" create "*) ;; *) exec runc "$@";; esac',
  '[ -e "$0.once" ] && exec runc "$@"',
  'touch "$0.once"',
  'runc "$@" || exit',
  'for word; do [ "$last" = --pid-file ] && init=$(cat "$word"); last=$word; done',
  'kill -KILL $(cat DIR/engine.pid) $(cat DIR/exec/supervisor/supervisor.pid) $init',
].join('\n');

/** A runtime that ends each exec with the end of the daemon. */
const KILLING_DAEMON = [
  '#!/bin/sh',
  'case " $* " in *" exec "*) ;; *) exec runc "$@";; esac',
  'runc "$@" || exit',
  'daemon=$(cat PIDFILE)',
  'kill -KILL $daemon',
  'while [ -e /proc/$daemon/exe ]; do sleep 0.01; done',
].join('\n');

interface Inspected {
  readonly State: { readonly Status: string; readonly Pid: number; readonly ExitCode: number; readonly Error: string };
}

const inspect = ({ id }: { id: string }): Promise<Inspected> =>
  callJson<Inspected>(engine.socketPath, 'GET', `/containers/${id}/json`);

/** A container's run, and what it has on the machine. */
interface Run {
  readonly id: string;
  readonly pid: number;
  readonly cgroups: readonly string[];
}

async function start(runtime = 'runc'): Promise<Run> {
  const HostConfig = { NetworkMode: 'none', Runtime: runtime };
  const json = { Image: image, Cmd: ['sleep', '1000'], HostConfig };
  const { Id: id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', { json }, 201);
  await callJson(engine.socketPath, 'POST', `/containers/${id}/start`, {}, 204);
  const { Pid: pid } = (await inspect({ id })).State;
  return { id, pid, cgroups: cgroupsOf(pid) };
}

/** The directories of a process's control groups. */
function cgroupsOf(pid: number): string[] {
  const root = '/sys/fs/cgroup';
  const paths = readFileSync(`/proc/${pid}/cgroup`, 'utf8')
    .trim()
    .split('\n')
    .map((line) => line.split(':').slice(2).join(':'));
  const unique = [...new Set(paths)].filter((path) => path !== '/');
  return [root, ...readdirSync(root).map((name) => join(root, name))]
    .flatMap((dir) => unique.map((path) => join(dir, path)))
    .filter((path) => existsSync(path));
}

function killShim(id: string, signal: NodeJS.Signals = 'SIGKILL'): void {
  const shims = shimsOf(engine.dir, id);
  assert.equal(shims.length, 1);
  for (const { pid } of shims) process.kill(pid, signal);
}

/** Kills the shim of a new container, and then sends the request about it. */
async function afterDeath(
  method: string,
  path: string,
  delayMs: number,
): Promise<{ container: Run; status: number; text: string }> {
  const container = await start();
  assert.ok(container.cgroups.length > 0);
  killShim(container.id);
  if (delayMs > 0) await sleep(delayMs);
  const { status, text } = await call(engine.socketPath, method, path.replace('ID', container.id));
  return { container, status, text };
}

/** Waits until nothing is left of a run: no process, control group or state of the runtime. */
async function gone({ id, pid, cgroups }: Run): Promise<void> {
  const paths = [`/proc/${pid}`, ...cgroups, join(engine.dir, 'exec', 'runtime-runc', 'engine', id)];
  const left = (): string[] => [
    ...paths.filter((path) => existsSync(path)),
    ...processesOf(engine.dir).flatMap(({ command }) => (command.includes(id) ? [command] : [])),
  ];
  await waitFor(
    () => `the end of ${left().join(', ')}`,
    () => left().length === 0,
  );
}

const remove = async (id: string): Promise<void> => {
  await callJson(engine.socketPath, 'DELETE', `/containers/${id}`, {}, 204);
};

async function each(act: (delayMs: number) => Promise<void>): Promise<void> {
  const wrong: string[] = [];
  for (let round = 0; round < ROUNDS; round += 1)
    for (const delayMs of DELAYS_MS)
      await act(delayMs).catch((error: unknown) => wrong.push(`after ${delayMs} ms: ${String(error)}`));
  assert.deepEqual(wrong, []);
}

test('a forced removal succeeds and leaves nothing', () =>
  each(async (delayMs) => {
    const { container, status, text } = await afterDeath('DELETE', '/containers/ID?force=true', delayMs);
    assert.equal(status, 204, text);
    assert.equal((await call(engine.socketPath, 'GET', `/containers/${container.id}/json`)).status, 404);
    await gone(container);
  }));

for (const [name, path, statuses] of [
  ['stop', '/containers/ID/stop?t=1', [204, 304]],
  ['SIGKILL', '/containers/ID/kill', [204, 409]],
  ['SIGTERM', '/containers/ID/kill?signal=TERM', [204, 409]],
  ['restart', '/containers/ID/restart?t=1', [204]],
] as const)
  test(`${name} acts as on a container that has ended`, () =>
    each(async (delayMs) => {
      const { container, status, text } = await afterDeath('POST', path, delayMs);
      assert.ok((statuses as readonly number[]).includes(status), `${status} ${text}`);
      if (name === 'restart') {
        const { State } = await inspect(container);
        assert.equal(State.Status, 'running');
        assert.notEqual(State.Pid, container.pid);
        await callJson(engine.socketPath, 'POST', `/containers/${container.id}/kill`, {}, 204);
      }
      await waitFor('the exit', async () => (await inspect(container)).State.Status === 'exited');
      assert.equal((await inspect(container)).State.ExitCode, 137);
      await gone(container);
      await callJson(engine.socketPath, 'POST', `/containers/${container.id}/start`, {}, 204);
      await callJson(engine.socketPath, 'POST', `/containers/${container.id}/kill`, {}, 204);
      await remove(container.id);
    }));

test('an exec is refused as on a container that has ended', () =>
  each(async (delayMs) => {
    const container = await start();
    const { Id } = await callJson<{ Id: string }>(
      engine.socketPath,
      'POST',
      `/containers/${container.id}/exec`,
      { json: { Cmd: ['true'] } },
      201,
    );
    killShim(container.id);
    if (delayMs > 0) await sleep(delayMs);
    const reply = await call(engine.socketPath, 'POST', `/exec/${Id}/start`, { json: { Detach: true } });
    // On a busy machine the end may be known by then, and an exec that never ran goes with its container.
    assert.ok([404, 409].includes(reply.status), reply.text);
    await waitFor('the exit', async () => (await inspect(container)).State.Status === 'exited');
    await remove(container.id);
    await gone(container);
  }));

test('where containerd cannot kill the container, its removal does', async () => {
  const container = await start('failing');
  killShim(container.id);
  await callJson(engine.socketPath, 'DELETE', `/containers/${container.id}?force=true`, {}, 204);
  await gone(container);
});

for (const victim of VICTIMS)
  test(`the ${victim} killed while the runtime makes the control groups: none of them stays`, async () => {
    const json = { Image: image, HostConfig: { NetworkMode: 'none', Runtime: victim } };
    const { Id: id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', { json }, 201);
    const { status, text } = await call(engine.socketPath, 'POST', `/containers/${id}/start`);
    assert.ok(status >= 400, text);
    const groups = (): string[] => containerCgroups(engine.mark).filter((path) => path.endsWith(id));
    await waitFor(
      () => `the end of ${groups().join(', ')}`,
      () => groups().length === 0,
    );
    await remove(id);
  });

test('the shim killed between creation and start of a task: it can be started again, nothing stays', async () => {
  const json = { Image: image, Cmd: ['sleep', '1000'], HostConfig: { NetworkMode: 'none', Runtime: 'starting' } };
  const { Id: id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', { json }, 201);
  const { status, text } = await call(engine.socketPath, 'POST', `/containers/${id}/start`);
  assert.equal(status, 500, text);
  const { Status, ExitCode, Error } = (await inspect({ id })).State;
  assert.deepEqual({ Status, ExitCode }, { Status: 'created', ExitCode: 128 });
  assert.match(Error, /^the shim does not answer: /);
  await callJson(engine.socketPath, 'POST', `/containers/${id}/start`, {}, 204);
  await callJson(engine.socketPath, 'POST', `/containers/${id}/kill`, {}, 204);
  await waitFor('its end', async () => (await inspect({ id })).State.ExitCode === 137);
  await remove(id);
  await waitFor('the control groups to go', () => !containerCgroups(engine.mark).some((path) => path.endsWith(id)));
  assert.doesNotMatch(engine.log, /undo failed/);
});

const skip = KERNEL_TELLS_EXITS ? false : 'only the shim knows, and says that it has ended';
test('a task that was made and never started has not ended for the next daemon', { skip }, async () => {
  const json = { Image: image, Cmd: ['sleep', '1000'], HostConfig: { NetworkMode: 'none', Runtime: 'creating' } };
  const { Id: id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', { json }, 201);
  await call(engine.socketPath, 'POST', `/containers/${id}/start`).catch(() => undefined);
  await engine.stop('SIGKILL');
  await engine.start();
  await waitFor('the failure', async () => (await inspect({ id })).State.Status === 'exited');
  const { ExitCode, Error } = (await inspect({ id })).State;
  assert.deepEqual([ExitCode, Error], [128, 'the daemon stopped while the container was starting']);
  const filters = encodeURIComponent(JSON.stringify({ container: [id], event: ['start', 'die'] }));
  const until = Date.now() / 1000;
  const { text } = await call(engine.socketPath, 'GET', `/events?since=1&until=${until}&filters=${filters}`);
  assert.equal(text, '');
  await callJson(engine.socketPath, 'POST', `/containers/${id}/start`, {}, 204);
  await callJson(engine.socketPath, 'DELETE', `/containers/${id}?force=true`, {}, 204);
});

test('an exec that was just beginning when the daemon was killed does not hold up the next one', async () => {
  const container = await start('daemon');
  const json = { Cmd: ['sleep', '1000'], AttachStdout: true, AttachStderr: true };
  const path = `/containers/${container.id}/exec`;
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', path, { json }, 201);
  await call(engine.socketPath, 'POST', `/exec/${Id}/start`, { json: {} }).catch(() => undefined);
  await engine.stop('SIGKILL');
  const before = engine.log.length;
  await engine.start();
  // The words of containerd after each question that the shim has not answered, of which 14 are half a minute.
  assert.ok(engine.log.slice(before).split('unknown status').length < 6);
  assert.equal((await inspect(container)).State.Status, 'running');
  await callJson(engine.socketPath, 'DELETE', `/containers/${container.id}?force=true`, {}, 204);
  await gone(container);
});

for (const [name, restart] of [
  ['an exit that the shim never tells is found out', false],
  ['so it is after the daemon was killed', true],
] as const)
  test(name, async () => {
    const [stopped, killed, removed, left] = await Promise.all([start(), start(), start(), start()]);
    const lettingKnow = [stopped, killed, removed, left].map(({ pid }) => killUnseen(pid));
    if (restart) {
      await engine.stop('SIGKILL');
      await engine.start();
      assert.equal((await inspect(left)).State.Status, 'running');
    }
    const commands = [
      call(engine.socketPath, 'POST', `/containers/${stopped.id}/stop?t=1`),
      call(engine.socketPath, 'POST', `/containers/${killed.id}/kill`),
      call(engine.socketPath, 'DELETE', `/containers/${removed.id}?force=true`),
      call(engine.socketPath, 'POST', `/containers/${left.id}/wait`),
    ];
    const replies = await Promise.all(commands);
    const statuses = replies.map(({ status }) => status);
    // Whether there was something left to kill depends on how much the shim knows by then.
    assert.ok([204, 409].includes(statuses.splice(1, 1)[0] ?? 0));
    assert.deepEqual(statuses, [204, 204, 200], replies.map(({ text }) => text).join(' '));
    for (const container of [stopped, killed, left]) {
      await waitFor('the exit', async () => (await inspect(container)).State.Status === 'exited');
      assert.equal((await inspect(container)).State.ExitCode, KERNEL_TELLS_EXITS ? 137 : 255);
    }
    lettingKnow.forEach((letKnow) => letKnow());
    for (const run of [stopped, killed, removed, left]) await gone(run);
    await callJson(engine.socketPath, 'POST', `/containers/${left.id}/start`, {}, 204);
    await callJson(engine.socketPath, 'POST', `/containers/${left.id}/kill`, {}, 204);
    for (const { id } of [stopped, killed, left]) await remove(id);
  });

test('a shim that hangs does not keep a container that has ended', async () => {
  const container = await start();
  killShim(container.id, 'SIGSTOP');
  process.kill(container.pid, 'SIGKILL');
  const waits = callJson<{ StatusCode: number }>(engine.socketPath, 'POST', `/containers/${container.id}/wait`);
  await callJson(engine.socketPath, 'DELETE', `/containers/${container.id}?force=true`, {}, 204);
  assert.equal((await waits).StatusCode, KERNEL_TELLS_EXITS ? 137 : 255);
  await gone(container);
});

test('a shim that hangs does not keep anybody from ending its container', async () => {
  const [stopped, killed, removed] = await Promise.all([start(), start(), start()]);
  for (const { id } of [stopped, killed, removed]) killShim(id, 'SIGSTOP');
  const replies = await Promise.all([
    call(engine.socketPath, 'POST', `/containers/${stopped.id}/stop?t=1`),
    call(engine.socketPath, 'POST', `/containers/${killed.id}/kill`),
    call(engine.socketPath, 'DELETE', `/containers/${removed.id}?force=true`),
  ]);
  assert.deepEqual(
    replies.map(({ status }) => status),
    [204, 204, 204],
    replies.map(({ text }) => text).join(' '),
  );
  for (const container of [stopped, killed]) {
    assert.equal((await inspect(container)).State.ExitCode, KERNEL_TELLS_EXITS ? 137 : 255);
    await remove(container.id);
  }
  for (const run of [stopped, killed, removed]) await gone(run);
});

test('no release of such a container has failed', () => {
  assert.deepEqual(
    engine.log.split('\n').filter((line) => /releasing a stopped container|removing a container/.test(line)),
    [],
  );
});
