/**
 * The runtime deletes the task of an ended container behind the reply to the container's removal. A runtime whose
 * deletions wait for a gate shows who waits for them and who does not.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Cleanup } from '../support/cleanup.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import type { Engine } from '../support/engine.js';
import { call, callJson } from '../support/http.js';
import { processesOf } from '../support/leftovers.js';
import { waitFor } from '../support/wait.js';

/** A request that waits for the gate, and should not, would wait for ever. */
const LIMIT = { timeout: 120_000 };
/** So many deletions nobody waits for (src/actors/container/life/departures.ts). */
const UNAWAITED = 4;

const cleanup = new Cleanup();
let engine: Engine;
let image: string;
let gate: string;

before(async () => {
  const dir = mkdtempSync(join(tmpdir(), 'slow-'));
  cleanup.add(async () => rmSync(dir, { recursive: true }));
  gate = join(dir, 'gate');
  const slow = join(dir, 'slow');
  const waits = `case " $* " in *" delete "*) while [ -e ${gate} ]; do sleep 0.05; done;; esac`;
  writeFileSync(slow, `#!/bin/sh\n${waits}\nexec runc "$@"\n`, { mode: 0o755 });
  ({ engine, image } = await startEngineWithImage(cleanup, engined({ args: ['--add-runtime', `slow=${slow}`] })));
});
after(() => cleanup.run());
afterEach(open);

function shut(): void {
  writeFileSync(gate, '');
}

function open(): void {
  rmSync(gate, { force: true });
}

const api = <T>(method: string, path: string, status: number, json?: object): Promise<T> =>
  callJson<T>(engine.socketPath, method, path, json === undefined ? {} : { json }, status);

async function start(HostConfig: object = {}, name?: string, Cmd: readonly string[] = ['true']): Promise<string> {
  const json = {
    Image: image,
    Cmd,
    HostConfig: { NetworkMode: 'none', Runtime: 'slow', ...HostConfig },
  };
  const query = name === undefined ? '' : `?name=${name}`;
  const { Id } = await api<{ Id: string }>('POST', `/containers/create${query}`, 201, json);
  await api('POST', `/containers/${Id}/start`, 204);
  return Id;
}

/** Starts a container that ends at once, and waits for that. */
async function run(...how: Parameters<typeof start>): Promise<string> {
  const id = await start(...how);
  await api('POST', `/containers/${id}/wait`, 200);
  return id;
}

const remove = (id: string): Promise<unknown> => api('DELETE', `/containers/${id}`, 204);

const processes = (id: string): string[] =>
  processesOf(engine.dir).flatMap(({ command }) => (command.includes(id) ? [command] : []));

async function gone(id: string): Promise<void> {
  const state = join(engine.dir, 'exec', 'runtime-runc', 'engine', id);
  await waitFor('nothing to be left of the task', () => processes(id).length === 0 && !existsSync(state));
}

test(
  'a removed container has given back its name, network and volume while its task is being deleted',
  LIMIT,
  async () => {
    shut();
    await api('POST', '/networks/create', 201, { Name: 'left' });
    const id = await run({ NetworkMode: 'left', Binds: ['kept:/kept'] }, 'first');
    await remove(id);
    assert.equal((await call(engine.socketPath, 'GET', `/containers/${id}/json`)).status, 404);
    await api('DELETE', '/networks/left', 204);
    await api('DELETE', '/volumes/kept', 204);
    const { Id: next } = await api<{ Id: string }>('POST', '/containers/create?name=first', 201, { Image: image });
    await remove(next);
    assert.notEqual(processes(id).length, 0, 'the runtime has deleted the task before');
    open();
    await gone(id);
  },
);

/** It does nothing in its first run. In its second one it writes after the time that output of a dead task may take. */
const SECOND_RUN = 'if [ -e ran ]; then sleep 6; echo late; fi; touch ran';

test('a start waits for the deletion of the task before, which frees the streams of that run', LIMIT, async () => {
  shut();
  const id = await run({}, undefined, ['sh', '-c', SECOND_RUN]);
  const started = api('POST', `/containers/${id}/start`, 204);
  await remove(await run({ Runtime: 'runc' }));
  const { State } = await api<{ State: { Status: string } }>('GET', `/containers/${id}/json`, 200);
  assert.equal(State.Status, 'exited');
  open();
  await started;
  await api('POST', `/containers/${id}/wait`, 200);
  const output = await call(engine.socketPath, 'GET', `/containers/${id}/logs?stdout=1`);
  assert.match(output.text, /late\n$/);
  await remove(id);
  await gone(id);
});

test('of many deletions few are not waited for', LIMIT, async () => {
  shut();
  const ids: string[] = [];
  for (let index = 0; index < UNAWAITED + 2; index += 1) ids.push(await run());
  let answered = 0;
  const removals = ids.map((id) => remove(id).then(() => (answered += 1)));
  await waitFor('removals that wait for nothing', () => answered === UNAWAITED);
  // This takes longer than the others would need.
  await remove(await run({ Runtime: 'runc' }));
  assert.equal(answered, UNAWAITED);
  open();
  await Promise.all(removals);
  for (const id of ids) await gone(id);
});

test('after a kill of the daemon the next one deletes the task of a removed container', LIMIT, async () => {
  shut();
  const id = await run();
  await remove(id);
  assert.notEqual(processes(id).length, 0);
  await engine.stop('SIGKILL');
  open();
  await engine.start();
  assert.doesNotMatch(engine.log, /ending a task/);
  assert.equal((await call(engine.socketPath, 'GET', `/containers/${id}/json`)).status, 404);
  await gone(id);
});

test('the end of the daemon waits for the deletion', LIMIT, async () => {
  shut();
  const id = await run();
  await remove(id);
  const { pid } = engine;
  const ended = engine.stop();
  // An end without anything to wait for takes a fifth of this.
  await sleep(3_000);
  assert.equal(existsSync(`/proc/${pid}`), true, 'the daemon has not waited');
  open();
  assert.equal(await ended, 0);
  assert.deepEqual(processes(id), []);
  await engine.start();
});
