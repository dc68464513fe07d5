/**
 * Shims that hang while the daemon starts: it serves others all the same, and their containers count as they did
 * before. What becomes of them is told as soon as somebody knows it.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { KERNEL_TELLS_EXITS } from '../support/kernel-tells-exits.js';
import { shimsOf } from '../support/shim-of.js';
import { waitFor } from '../support/wait.js';

/** containerd lists them one by one, and waits 2 s for each: more than the start would take for all of them. */
const HUNG = 8;
const START_LIMIT_MS = 60_000;

const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup, engined({ args: ['--live-restore'] })));
});
after(() => cleanup.run());

interface State {
  readonly Status: string;
  readonly Pid: number;
  readonly ExitCode: number;
}

async function stateOf(id: string): Promise<State> {
  return (await callJson<{ State: State }>(engine.socketPath, 'GET', `/containers/${id}/json`)).State;
}

async function run(script: string): Promise<string> {
  const json = { Image: image, Cmd: ['sh', '-c', script], OpenStdin: true };
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', { json }, 201);
  await callJson(engine.socketPath, 'POST', `/containers/${Id}/start`, {}, 204);
  return Id;
}

async function ended(id: string, code: number): Promise<void> {
  const { StatusCode } = await callJson<{ StatusCode: number }>(engine.socketPath, 'POST', `/containers/${id}/wait`);
  assert.equal(StatusCode, code);
}

test('a start does not wait for shims that hang, and each exit is told', { timeout: 300_000 }, async () => {
  const ids = await Promise.all(
    Array.from({ length: HUNG }, () => run('trap "echo asked; exit 6" TERM; while :; do sleep 0.1; done')),
  );
  const before = await Promise.all(ids.map(stateOf));
  const pids = ids.map((id) => {
    const [shim] = shimsOf(engine.dir, id);
    assert.ok(shim);
    return shim.pid;
  });
  await engine.stop('SIGKILL');
  for (const pid of pids) process.kill(pid, 'SIGSTOP');
  const letGo = (at: number): boolean => process.kill(pids[at] ?? 0, 'SIGCONT');
  try {
    await engine.start(START_LIMIT_MS);
    assert.deepEqual(await Promise.all(ids.map(stateOf)), before);

    const [killed = '', asked = '', quit = '', ...others] = ids;
    // The shim still hangs when the process ends.
    process.kill(before[0]?.Pid ?? 0, 'SIGKILL');
    await ended(killed, KERNEL_TELLS_EXITS ? 137 : 255);
    // The shim goes on, and tells the exit itself.
    process.kill(before[1]?.Pid ?? 0, 'SIGTERM');
    letGo(1);
    await ended(asked, 6);
    letGo(2);
    const stopped = await call(engine.socketPath, 'POST', `/containers/${quit}/stop`);
    assert.equal(stopped.status, 204, stopped.text);
    await ended(quit, 6);
    // The pipes were taken over without a word of the shim.
    for (const id of [asked, quit])
      await waitFor('the output', async () =>
        (await call(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1`)).text.includes('asked'),
      );
    for (const at of others.keys()) letGo(at + 3);
    for (const id of ids) await callJson(engine.socketPath, 'DELETE', `/containers/${id}?force=1`, {}, 204);
  } finally {
    for (const pid of pids)
      try {
        process.kill(pid, 'SIGCONT');
      } catch {
        // It has ended.
      }
  }
});
