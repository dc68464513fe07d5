/**
 * The end of a container's run, as those see it who are attached, who poll, and who wait. ENDS_COUNT=1000 makes it the
 * long run.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { callJson, RawConnection } from '../support/http.js';
import { waitFor } from '../support/wait.js';

interface Inspection {
  readonly RestartCount: number;
  readonly State: {
    readonly Status: string;
    readonly Running: boolean;
    readonly ExitCode: number;
    readonly StartedAt: string;
  };
  readonly NetworkSettings: { readonly Networks: Readonly<Record<string, { readonly IPAddress: string }>> };
}

const COUNT = Number(process.env['ENDS_COUNT'] ?? 12);
const PATIENCE_MS = 120_000;
const cleanup = new Cleanup();
let engine: Engine;
let image: string;

before(async () => {
  ({ engine, image } = await startEngineWithImage(cleanup));
});
after(() => cleanup.run());

async function create(command: readonly string[], options: object = {}): Promise<string> {
  const json = { Image: image, Cmd: command, ...options };
  return (await callJson<{ Id: string }>(engine.socketPath, 'POST', '/containers/create', { json }, 201)).Id;
}

const start = (id: string): Promise<unknown> => callJson(engine.socketPath, 'POST', `/containers/${id}/start`, {}, 204);
const remove = (id: string): Promise<unknown> =>
  callJson(engine.socketPath, 'DELETE', `/containers/${id}?force=1`, {}, 204);
const inspect = (id: string): Promise<Inspection> => callJson(engine.socketPath, 'GET', `/containers/${id}/json`);

test('who reads the end of an attach stream finds the exit recorded and the addresses free', async () => {
  for (let turn = 0; turn < COUNT; turn++) {
    const id = await create(['sh', '-c', 'echo out; exit 3']);
    const connection = await RawConnection.open(engine.socketPath);
    connection.write(`POST /containers/${id}/attach?stream=1&stdout=1 HTTP/1.1\r\nHost: localhost\r\n\r\n`);
    await connection.readThrough('\r\n\r\n', PATIENCE_MS);
    await start(id);
    assert.match((await connection.readToEnd(PATIENCE_MS)).toString(), /out\n$/);
    const { State, NetworkSettings } = await inspect(id);
    connection.close();
    assert.deepEqual([State.Status, State.ExitCode], ['exited', 3]);
    for (const { IPAddress } of Object.values(NetworkSettings.Networks)) assert.equal(IPAddress, '');
    await remove(id);
  }
});

test('a container that comes back by its policy runs or restarts, and counts the restart at its exit', async () => {
  const id = await create(['sh', '-c', 'exit 4'], {
    HostConfig: { RestartPolicy: { Name: 'on-failure', MaximumRetryCount: 4 } },
  });
  await start(id);
  const seen: string[] = [];
  let isOver = false;
  const ended = callJson<{ StatusCode: number }>(
    engine.socketPath,
    'POST',
    `/containers/${id}/wait?condition=next-exit`,
  );
  await waitFor(
    'the last exit',
    async () => {
      const { State, RestartCount } = await inspect(id);
      const what = `${State.Status} ${RestartCount}`;
      if (seen.at(-1) !== what) seen.push(what);
      isOver = State.Status === 'exited';
      if (State.Status === 'restarting') assert.ok(State.Running && RestartCount > 0 && State.ExitCode === 4, what);
      return isOver;
    },
    PATIENCE_MS,
    1,
  );
  assert.equal((await ended).StatusCode, 4);
  const [last, ...others] = seen.toReversed();
  assert.equal(last, 'exited 4', seen.join(', '));
  assert.ok(
    others.every((what) => /^(running|restarting) /.test(what)),
    seen.join(', '),
  );
  await remove(id);
});
