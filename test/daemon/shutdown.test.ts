/**
 * The end of the daemon: at any moment of its start, with containers that take their time, and when a step of it fails.
 */
import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson, open, RawConnection } from '../support/http.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
let engine: Engine;
let image: string;
let bin: string;

before(async () => {
  bin = mkdtempSync(join(tmpdir(), 'shutdown-'));
  cleanup.add(async () => rmSync(bin, { recursive: true, force: true }));
  // It fails to delete chains as long as a file is there.
  writeFileSync(
    join(bin, 'iptables-restore'),
    [
      '#!/bin/sh',
      `PATH=\${PATH#*:}`,
      'input=$(cat)',
      `if [ -e ${bin}/busy ] && printf %s "$input" | grep -q -e ^-X; then`,
      '  echo "CHAIN_DEL failed (Device or resource busy)" >&2; exit 1',
      'fi',
      'printf "%s\\n" "$input" | exec iptables-restore "$@"',
      '',
    ].join('\n'),
  );
  chmodSync(join(bin, 'iptables-restore'), 0o755);
  const env = { PATH: `${bin}:${process.env['PATH'] ?? ''}` };
  ({ engine, image } = await startEngineWithImage(
    cleanup,
    engined({ args: ['--ip-forward-no-drop', '--shutdown-timeout', '25'], env }),
  ));
});
after(() => cleanup.run());

const exitCode = async (name: string): Promise<number> => {
  const { State } = await callJson<{ State: { ExitCode: number } }>(
    engine.socketPath,
    'GET',
    `/containers/${name}/json`,
  );
  return State.ExitCode;
};

test('containers get all of the shutdown timeout, and their own time where they name one', async () => {
  const slow = "trap 'sleep 11; exit 7' TERM; echo ready; sleep 1000 & wait";
  await engineOk(engine, ['run', '-d', '--name', 'slow', image, 'sh', '-c', slow]);
  await engineOk(engine, ['run', '-d', '--name', 'patient', '--stop-timeout', '-1', image, 'sh', '-c', slow]);
  await engineOk(engine, ['run', '-d', '--name', 'hasty', '--stop-timeout', '1', image, 'sh', '-c', slow]);
  for (const name of ['slow', 'patient', 'hasty']) {
    await waitFor(`the trap of ${name}`, async () => (await engineOk(engine, ['logs', name])) === 'ready', 60_000);
  }
  assert.equal(await engine.stop(), 0);
  await engine.start();
  assert.deepEqual([await exitCode('slow'), await exitCode('patient'), await exitCode('hasty')], [7, 7, 137]);
  await engineOk(engine, ['rm', 'slow', 'patient', 'hasty']);
});

test('who waits for a container, or follows it, is told how it ends', async () => {
  const { socketPath } = engine;
  const last =
    "trap 'sleep 3; head -c 3000000 /dev/zero | tr \\\\0 x; echo last; exit 3' TERM; echo ready; sleep 1000 & wait";
  await engineOk(engine, ['run', '-d', '--name', 'told', image, 'sh', '-c', last]);
  await engineOk(engine, ['run', '-d', '--rm', '--name', 'gone', '--stop-timeout', '0', image, 'sleep', '1000']);
  await waitFor('the trap', async () => (await engineOk(engine, ['logs', 'told'])) === 'ready');
  const waits = ['told/wait?condition=next-exit', 'gone/wait?condition=removed'].map(async (path) =>
    callJson<{ StatusCode: number }>(socketPath, 'POST', `/containers/${path}`),
  );
  const log = await open(socketPath, 'GET', '/containers/told/logs?stdout=1&follow=1');
  const events = call(socketPath, 'GET', '/events?filters={"event":["die"]}');
  const attached = await RawConnection.open(socketPath);
  attached.write('POST /containers/told/attach?stream=1&stdout=1 HTTP/1.1\r\nHost: d\r\nConnection: Upgrade\r\n');
  attached.write('Upgrade: tcp\r\nContent-Length: 0\r\n\r\n');
  await attached.readThrough('\r\n\r\n');
  const [stopped, seen] = [engine.stop(), events.catch(() => undefined)];
  const codes = (await Promise.all(waits)).map(({ StatusCode }) => StatusCode);
  assert.deepEqual(codes, [3, 137]);
  // This client reads slowly: most of the output is in the daemon yet.
  assert.match(await text(log.message), /ready\n[^]{3000000,}last\n$/);
  assert.match((await attached.readToEnd()).toString(), /last\n$/);
  // Events have no end of their own, so theirs is cut off.
  assert.equal(await seen, undefined);
  await stopped;
  attached.close();
  await engine.start();
  assert.equal(await exitCode('told'), 3);
  await engineOk(engine, ['rm', 'told']);
});

test('a start that is interrupted ends in order, wherever it is', async () => {
  await engineOk(engine, [
    'run',
    '-d',
    '--name',
    'back',
    '--restart',
    'always',
    '--stop-timeout',
    '0',
    image,
    'sleep',
    '1000',
  ]);
  await engine.stop();
  for (const line of ['starting containerd', 'supervisor is ready', 'containers recovered', 'API listens']) {
    const before = engine.log.length;
    const starting = engine.start().catch(() => undefined);
    await waitFor(`"${line}"`, () => engine.log.slice(before).includes(line), 60_000, 1);
    assert.equal(await engine.stop(), 0, engine.log.slice(before));
    await starting;
    await waitFor(
      () => `nothing to be left: ${engine.leftovers().join('\n')}`,
      () => engine.leftovers().every((item) => !item.startsWith('process') && !item.startsWith('mount')),
    );
  }
  await engine.start();
  await engineOk(engine, ['rm', '-f', 'back']);
});

test('a step of the end that fails does not keep the others from being made', async () => {
  writeFileSync(join(bin, 'busy'), '');
  await engine.stop();
  rmSync(join(bin, 'busy'));
  assert.match(engine.log, /CHAIN_DEL failed/);
  // The keeper of descriptors ends when it notices that the daemon has gone.
  await waitFor(
    () => `processes and links to be gone: ${engine.leftovers().join('\n')}`,
    () => engine.leftovers().every((item) => !/^(process|link) /.test(item)),
  );
  // The next one takes away what was left.
  await engine.start();
});
