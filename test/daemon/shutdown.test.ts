/**
 * The end of the daemon: at any moment of its start, with containers that take their time, and when a step of it fails.
 */
import assert from 'node:assert/strict';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { callJson } from '../support/http.js';
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
