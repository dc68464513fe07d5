/**
 * Shims that serve one container after another, as containerd can have it since 2.1. Each of them serves one container
 * at a time; its death is noticed, and nothing of it is left when the daemon has ended.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { isAtLeast, parseVersion } from '../../src/text/version.js';
import { Cleanup } from '../support/cleanup.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import type { Engine } from '../support/engine.js';
import { call, callJson } from '../support/http.js';
import { KERNEL_TELLS_EXITS } from '../support/kernel-tells-exits.js';
import { processesOf } from '../support/leftovers.js';
import { shimsOf } from '../support/shim-of.js';
import { waitFor } from '../support/wait.js';

const [, , version = ''] = execFileSync('containerd', ['--version'], { encoding: 'utf8' }).split(' ');
const skip = isAtLeast(parseVersion(version.replace(/^v/, '')), [2, 1]) ? false : 'containerd starts all shims';

const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  if (skip === false) ({ engine, image } = await startEngineWithImage(cleanup, engined({ args: ['--live-restore'] })));
});
after(() => cleanup.run());

async function start(command: readonly string[], host: object = {}): Promise<string> {
  const json = { Image: image, Cmd: command, HostConfig: { NetworkMode: 'none', ...host } };
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', { json }, 201);
  await callJson(engine.socketPath, 'POST', `/containers/${Id}/start`, {}, 204);
  return Id;
}

async function remove(id: string): Promise<void> {
  await callJson(engine.socketPath, 'DELETE', `/containers/${id}?force=true`, {}, 204);
}

/** Ends a container and starts it again, which waits until its shim serves nobody. */
async function restart(id: string): Promise<void> {
  await callJson(engine.socketPath, 'POST', `/containers/${id}/restart?t=0`, {}, 204);
}

async function exitCode(id: string): Promise<number> {
  const { StatusCode } = await callJson<{ StatusCode: number }>(engine.socketPath, 'POST', `/containers/${id}/wait`);
  return StatusCode;
}

/** Returns the process of the shim that serves a container. */
function shimOf(id: string): number {
  const [shim, ...others] = shimsOf(engine.dir, id);
  assert.ok(shim !== undefined && others.length === 0, 'a container has one shim');
  return shim.pid;
}

function shims(): number[] {
  return processesOf(engine.dir)
    .filter(({ command }) => command.includes('containerd-shim'))
    .map(({ pid }) => pid);
}

/** Ends the shims that serve nobody, so that the next container gets a new one. */
async function endIdle(): Promise<void> {
  const idle = shims();
  for (const pid of idle) process.kill(pid, 'SIGKILL');
  await waitFor('the end of idle shims', () => shims().length === 0);
}

test(
  'containers after each other have the same shim, and containers at the same time have one each',
  { skip },
  async () => {
    const first = await start(['sleep', '1000']);
    const shim = shimOf(first);
    await restart(first);
    const other = await start(['sleep', '1000']);
    assert.equal(shimOf(first), shim);
    assert.notEqual(shimOf(other), shim);
    await Promise.all([remove(first), remove(other)]);
  },
);

test('what a shim serves is told apart: output, exit code, exec', { skip }, async () => {
  for (const code of [3, 0, 7]) {
    const id = await start(['sh', '-c', `echo out-${code}; exit ${code}`]);
    assert.equal(await exitCode(id), code);
    const log = await call(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1&stderr=1`);
    assert.match(log.text, new RegExp(`out-${code}\n$`));
    assert.equal(log.text.match(/out-/g)?.length, 1);
    await remove(id);
  }
  const id = await start(['sleep', '1000']);
  const json = { Cmd: ['sh', '-c', 'exit 5'], AttachStdout: true };
  const exec = await callJson<{ Id: string }>(engine.socketPath, 'POST', `/containers/${id}/exec`, { json }, 201);
  await call(engine.socketPath, 'POST', `/exec/${exec.Id}/start`, { json: {} });
  const { ExitCode } = await callJson<{ ExitCode: number }>(engine.socketPath, 'GET', `/exec/${exec.Id}/json`);
  assert.equal(ExitCode, 5);
  await remove(id);
});

test('a shim that was killed while it served nobody is not used any more', { skip }, async () => {
  await remove(await start(['true']));
  await endIdle();
  const id = await start(['true']);
  assert.equal(await exitCode(id), 0);
  await remove(id);
});

test('a shim that hangs while it serves nobody is ended, and no container gets it', { skip }, async () => {
  await endIdle();
  const last = await start(['true']);
  const hung = shimOf(last);
  await remove(last);
  await waitFor('the shim to serve nobody', () => shimsOf(engine.dir, last).length === 0);
  process.kill(hung, 'SIGSTOP');
  const id = await start(['true']);
  assert.equal(await exitCode(id), 0);
  await waitFor('the end of the shim that hangs', () => !shims().includes(hung));
  await remove(id);
});

test('a container whose shim is killed has ended with 137, and another one goes on', { skip }, async () => {
  const [victim, other] = [await start(['sleep', '1000']), await start(['sleep', '1000'])];
  process.kill(shimOf(victim), 'SIGKILL');
  assert.equal(await exitCode(victim), 137);
  const { State } = await callJson<{ State: { Running: boolean } }>(
    engine.socketPath,
    'GET',
    `/containers/${other}/json`,
  );
  assert.ok(State.Running);
  await callJson(engine.socketPath, 'POST', `/containers/${victim}/start`, {}, 204);
  await Promise.all([remove(victim), remove(other)]);
});

test(
  'a daemon that follows a killed one ends the shims that serve nobody, and watches the others',
  { skip },
  async () => {
    const [kept, spare] = [await start(['sleep', '1000']), await start(['sleep', '1000'])];
    const [keptShim, spareShim] = [shimOf(kept), shimOf(spare)];
    await remove(spare);
    assert.ok(shims().includes(spareShim), 'it waits for the next container');
    await engine.stop('SIGKILL');
    await engine.start();
    await waitFor('the end of the shim that serves nobody', () => !shims().includes(spareShim));
    assert.equal(shimOf(kept), keptShim);
    const end = exitCode(kept);
    process.kill(keptShim, 'SIGKILL');
    assert.equal(await end, 137);
    await callJson(engine.socketPath, 'POST', `/containers/${kept}/start`, {}, 204);
    await remove(kept);
  },
);

test('a shim that was killed while the daemon was away: its container has ended', { skip }, async () => {
  const id = await start(['sleep', '1000']);
  const shim = shimOf(id);
  await engine.stop('SIGKILL');
  process.kill(shim, 'SIGKILL');
  await engine.start();
  const { State } = await callJson<{ State: { Status: string; ExitCode: number } }>(
    engine.socketPath,
    'GET',
    `/containers/${id}/json`,
  );
  assert.equal(State.Status, 'exited');
  if (KERNEL_TELLS_EXITS) assert.equal(State.ExitCode, 137);
  await remove(id);
});

test('a daemon that ends leaves the shims of containers that live on, and no other', { skip }, async () => {
  const [kept, spare] = [await start(['sleep', '1000']), await start(['sleep', '1000'])];
  const shim = shimOf(kept);
  await remove(spare);
  await engine.stop();
  assert.deepEqual(shims(), [shim]);
  await engine.start();
  assert.equal(shimOf(kept), shim);
  await restart(kept);
  assert.equal(shimOf(kept), shim, 'the shim that was taken over serves on');
  await remove(kept);
});

test('a shim is the first to end where memory is short, and leaves no zombie', { skip }, async () => {
  const id = await start(['sleep', '1000']);
  const shim = shimOf(id);
  const score = (pid: number | undefined): number => Number(readFileSync(`/proc/${pid}/oom_score_adj`, 'latin1'));
  assert.equal(score(shim), Math.min(score(engine.pid) + 1, 1000));
  process.kill(shim, 'SIGKILL');
  await waitFor('nothing to be left of the shim', () => !existsSync(`/proc/${shim}`));
  await remove(id);
});

test('nothing of the environment of a shim is in that of its containers and their execs', { skip }, async () => {
  const id = await start(['sh', '-c', 'env; exec sleep 1000']);
  const json = { Cmd: ['env'], AttachStdout: true };
  const exec = await callJson<{ Id: string }>(engine.socketPath, 'POST', `/containers/${id}/exec`, { json }, 201);
  const byExec = await call(engine.socketPath, 'POST', `/exec/${exec.Id}/start`, { json: {} });
  const log = await waitFor('the environment of the container', async () => {
    const { text } = await call(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1`);
    return text.includes('PATH=') ? text : undefined;
  });
  for (const text of [byExec.text, log]) {
    assert.match(text, /PATH=/);
    assert.doesNotMatch(text, /GOMAXPROCS|TTRPC_ADDRESS|GRPC_ADDRESS|NAMESPACE/);
  }
  await remove(id);
});

test('a shim that cannot start says why, and containerd starts those of all containers then', { skip }, async (t) => {
  const programs = mkdtempSync(join(tmpdir(), 'shim-pool-'));
  t.after(() => rmSync(programs, { recursive: true }));
  const name = 'containerd-shim-runc-v2';
  const real = execFileSync('which', [name], { encoding: 'utf8' }).trim();
  // containerd's own call has this word at its end.
  const script = `#!/bin/sh\ncase "$*" in *start|*delete) exec ${real} "$@";; esac\necho no server today >&2\nexit 1\n`;
  writeFileSync(join(programs, name), script, { mode: 0o755 });
  const env = { ...process.env, PATH: `${programs}:${process.env['PATH']}` };
  const other = new Cleanup();
  try {
    const started = await startEngineWithImage(other, engined({ env }));
    const json = { Image: started.image, Cmd: ['sh', '-c', 'exit 4'], HostConfig: { NetworkMode: 'none' } };
    const { socketPath } = started.engine;
    const { Id } = await callJson<{ Id: string }>(socketPath, 'POST', '/containers/create', { json }, 201);
    await callJson(socketPath, 'POST', `/containers/${Id}/start`, {}, 204);
    const { StatusCode } = await callJson<{ StatusCode: number }>(socketPath, 'POST', `/containers/${Id}/wait`);
    assert.equal(StatusCode, 4);
    assert.match(started.engine.log, /the shim does not start: no server today/);
    await callJson(socketPath, 'DELETE', `/containers/${Id}`, {}, 204);
  } finally {
    await other.run();
  }
});
