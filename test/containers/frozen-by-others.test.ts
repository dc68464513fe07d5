/** Containers that somebody pauses and resumes by asking containerd itself: what the daemon shows of them is true. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { shimsOf } from '../support/shim-of.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup, engined({ args: ['--live-restore'] })));
});
after(() => cleanup.run());

function byContainerd(action: 'pause' | 'resume', id: string): void {
  const socket = join(engine.dir, 'exec/supervisor/supervisor.sock');
  execFileSync('ctr', ['--address', socket, '--namespace', 'engine', 'tasks', action, id]);
}

async function run(): Promise<string> {
  const json = { Image: image, Cmd: ['sleep', '1000'] };
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', { json }, 201);
  await callJson(engine.socketPath, 'POST', `/containers/${Id}/start`, {}, 204);
  return Id;
}

async function statusOf(id: string): Promise<string> {
  const { State } = await callJson<{ State: { Status: string } }>(engine.socketPath, 'GET', `/containers/${id}/json`);
  return State.Status;
}

const becomes = (id: string, status: string): Promise<unknown> =>
  waitFor(`the container to be ${status}`, async () => (await statusOf(id)) === status);

test('a pause and a resume by others are shown, told and acted upon', async () => {
  const since = Math.floor(Date.now() / 1000);
  const id = await run();
  byContainerd('pause', id);
  await becomes(id, 'paused');
  const again = await call(engine.socketPath, 'POST', `/containers/${id}/pause`);
  assert.deepEqual([again.status, /is already paused/.test(again.text)], [409, true], again.text);
  byContainerd('resume', id);
  await becomes(id, 'running');
  byContainerd('pause', id);
  await becomes(id, 'paused');
  await callJson(engine.socketPath, 'POST', `/containers/${id}/unpause`, {}, 204);
  assert.equal(await statusOf(id), 'running');
  // Many changes at once: the last one counts.
  for (let count = 0; count < 5; count++) for (const action of ['pause', 'resume'] as const) byContainerd(action, id);
  byContainerd('pause', id);
  await becomes(id, 'paused');
  await callJson(engine.socketPath, 'POST', `/containers/${id}/stop?t=0`, {}, 204);
  const filters = encodeURIComponent(JSON.stringify({ container: [id], event: ['pause', 'unpause'] }));
  const until = Math.floor(Date.now() / 1000) + 1;
  const told = await call(engine.socketPath, 'GET', `/events?since=${since}&until=${until}&filters=${filters}`);
  const actions = [...told.text.matchAll(/"Action":"(\w+)"/g)].map(([, action]) => action);
  assert.deepEqual(actions.slice(0, 4), ['pause', 'unpause', 'pause', 'unpause']);
  await callJson(engine.socketPath, 'DELETE', `/containers/${id}?force=1`, {}, 204);
});

test('a container paused while the daemon was away is shown so when its shim, which hung, answers', async () => {
  const id = await run();
  const [shim] = shimsOf(engine.dir, id);
  assert.ok(shim);
  await engine.stop('SIGKILL');
  byContainerd('pause', id);
  process.kill(shim.pid, 'SIGSTOP');
  try {
    await engine.start();
    assert.equal(await statusOf(id), 'running');
  } finally {
    process.kill(shim.pid, 'SIGCONT');
  }
  await becomes(id, 'paused');
  await callJson(engine.socketPath, 'POST', `/containers/${id}/unpause`, {}, 204);
  await callJson(engine.socketPath, 'DELETE', `/containers/${id}?force=1`, {}, 204);
});
