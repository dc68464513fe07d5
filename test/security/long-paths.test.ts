/** A command or a working directory that is too long for any path is refused, and does not hang the runtime. */
import assert from 'node:assert/strict';
import { after, afterEach, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { removeContainers } from '../support/container-removal.js';
import type { Engine } from '../support/engine.js';
import { kindUnderTest } from '../support/engined.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { call, callJson, type Reply } from '../support/http.js';

/** The error of such a one fills a pipe of runc. */
const LONG = 'x'.repeat(100_000);
const NOT_FOUND = /exec: "x{100}…": executable file not found in \$PATH$/;
const TOO_LONG = /"\/x{99}…".*: file name too long$/;
const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup, kindUnderTest()));
});
after(() => cleanup.run());
afterEach(() => removeContainers(engine));

async function make(config: object): Promise<string> {
  const json = { Image: image, Cmd: ['sleep', '1000'], ...config };
  return (await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', { json })).Id;
}

function assertRefused({ status, text }: Reply, wanted: number, message: RegExp): void {
  assert.equal(status, wanted, text.slice(0, 500));
  assert.match((JSON.parse(text) as { message: string }).message, message);
}

const CASES = [
  [{ Cmd: [LONG] }, 400, NOT_FOUND, 127],
  [{ Cmd: [`/${LONG}`] }, 400, TOO_LONG, 126],
  [{ WorkingDir: `/${LONG}` }, 400, TOO_LONG, 126],
] as const;

test('start', async () => {
  for (const [config, status, text, exitCode] of CASES) {
    const id = await make(config);
    const reply = await call(engine.socketPath, 'POST', `/containers/${id}/start`);
    assertRefused(reply, status, text);
    const { State } = await callJson<{ State: { Status: string; ExitCode: number } }>(
      engine.socketPath,
      'GET',
      `/containers/${id}/json`,
    );
    assert.deepEqual([State.Status, State.ExitCode], ['created', exitCode]);
    assert.equal((await call(engine.socketPath, 'DELETE', `/containers/${id}`)).status, 204);
  }
});

test('exec', async () => {
  const id = await make({});
  await call(engine.socketPath, 'POST', `/containers/${id}/start`);
  for (const [config, , text] of CASES) {
    const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', `/containers/${id}/exec`, {
      json: { Cmd: ['true'], ...config },
    });
    const reply = await call(engine.socketPath, 'POST', `/exec/${Id}/start`, { json: { Detach: true } });
    assertRefused(reply, 400, text);
  }
  const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'POST', `/containers/${id}/exec`, {
    json: { Cmd: ['true', 'x'.repeat(100_000)] },
  });
  assert.equal((await call(engine.socketPath, 'POST', `/exec/${Id}/start`, { json: { Detach: true } })).status, 200);
});
