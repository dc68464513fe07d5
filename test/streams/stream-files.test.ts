/**
 * Files that streams of containers have on the disk are removed, even if the processes that should do it are killed.
 */
import assert from 'node:assert/strict';
import { closeSync, constants, existsSync, openSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { pipeRoom } from '../../src/sys/files/fd.js';
import { Cleanup } from '../support/cleanup.js';
import { CliSession } from '../support/cli.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { shimsOf } from '../support/shim-of.js';
import { waitFor } from '../support/wait.js';

const PATIENCE_MS = 60_000;
const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup, engined()));
});
after(() => cleanup.run());

const filesOf = (id: string): string => join(engine.dir, 'exec', 'io', id);
const execsOf = (id: string): string[] =>
  readdirSync(filesOf(id), { withFileTypes: true }).flatMap((entry) => (entry.isDirectory() ? [entry.name] : []));
const run = (): Promise<string> => engineOk(engine, ['run', '-d', '--network', 'none', image, 'sleep', '100000']);

function shimOf(id: string): number {
  const [shim] = shimsOf(engine.dir, id);
  if (shim === undefined) throw new Error(`container ${id} has no shim`);
  return shim.pid;
}

/** Room of the pipe that a process has under this descriptor. */
function roomOf(pid: number, descriptor: number): number {
  const fd = openSync(`/proc/${pid}/fd/${descriptor}`, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    return pipeRoom(fd);
  } finally {
    closeSync(fd);
  }
}

test('the pipe between a container that prints much and its shim gets room, its other one does not', async () => {
  const floods = 'while :; do yes | head -c 300000; sleep 0.1; done';
  const id = await engineOk(engine, ['run', '-d', '--network', 'none', image, 'sh', '-c', floods]);
  const { State } = await callJson<{ State: { Pid: number } }>(engine.socketPath, 'GET', `/containers/${id}/json`);
  await waitFor('the room', () => roomOf(State.Pid, 1) === 1 << 20, PATIENCE_MS);
  assert.equal(roomOf(State.Pid, 2), 64 << 10);
  await engineOk(engine, ['rm', '-f', id]);
});

test('the kill of a shim ends its execs and leaves no FIFO', async () => {
  const id = await run();
  const session = new CliSession(engine, ['exec', '-i', id, 'sh', '-c', 'echo ready; sleep 100000']);
  await session.output(/ready/, PATIENCE_MS);
  const [exec = ''] = execsOf(id);
  // Its first output may come before the shim has answered that it started.
  await waitFor(
    'the start of the exec',
    async () => (await callJson<{ Running: boolean }>(engine.socketPath, 'GET', `/exec/${exec}/json`)).Running,
    PATIENCE_MS,
  );
  process.kill(shimOf(id), 'SIGKILL');
  assert.notEqual((await session.ended(PATIENCE_MS)).status, 0);
  const { Running, ExitCode } = await waitFor(
    'the end of the exec',
    async () => {
      const now = await callJson<{ Running: boolean; ExitCode: number }>(
        engine.socketPath,
        'GET',
        `/exec/${exec}/json`,
      );
      return !now.Running && now;
    },
    PATIENCE_MS,
  );
  assert.deepEqual([Running, ExitCode], [false, 137]);
  await waitFor('the FIFOs to be gone', () => !existsSync(filesOf(id)), PATIENCE_MS);
  await engineOk(engine, ['rm', '-f', id]);
});

test('an exec whose shim dies before it has answered the start did not miss its command', async () => {
  const id = await run();
  const shim = shimOf(id);
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', `/containers/${id}/exec`, {
    json: { Cmd: ['sleep', '100000'] },
  });
  process.kill(shim, 'SIGSTOP');
  const starting = call(engine.socketPath, 'POST', `/exec/${Id}/start`, { json: { Detach: true } });
  await waitFor('the start to begin', () => existsSync(filesOf(id)) && execsOf(id).includes(Id), PATIENCE_MS);
  process.kill(shim, 'SIGKILL');
  const { status, text } = await starting;
  // The container is told to have ended, if that is known by then.
  assert.ok(status === 500 || (status === 409 && text.includes('is not running')), text);
  const { Running, ExitCode } = await callJson<{ Running: boolean; ExitCode: number }>(
    engine.socketPath,
    'GET',
    `/exec/${Id}/json`,
  );
  assert.deepEqual([Running, ExitCode], [false, 128]);
  await engineOk(engine, ['wait', id]);
  await engineOk(engine, ['rm', '-f', id]);
});

test('a daemon that was killed finds those of execs, and of containers that have ended, at its start', async () => {
  const [running, ended] = [await run(), await run()];
  for (const id of [running, ended]) await engineOk(engine, ['exec', '-d', id, 'sleep', '100000']);
  assert.deepEqual([execsOf(running).length, execsOf(ended).length], [1, 1]);
  const { State } = await callJson<{ State: { Pid: number } }>(engine.socketPath, 'GET', `/containers/${ended}/json`);
  await engine.stop('SIGKILL');
  process.kill(State.Pid, 'SIGKILL');
  await waitFor('the container to end', () => !existsSync(`/proc/${State.Pid}/exe`), PATIENCE_MS);
  await engine.start();
  assert.deepEqual(execsOf(running), []);
  assert.ok(existsSync(join(filesOf(running), 'stdout')));
  await waitFor('the files of the other to be gone', () => !existsSync(filesOf(ended)), PATIENCE_MS);
  assert.equal(await engineOk(engine, ['exec', running, 'echo', 'again']), 'again');
  await engineOk(engine, ['rm', '-f', running, ended]);
  assert.deepEqual(readdirSync(join(engine.dir, 'exec', 'io')), []);
});
