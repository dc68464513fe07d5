/**
 * A running daemon needs its own files no more: they can be replaced or deleted, as the upgrade of a package does, and
 * nothing changes until the restart. No worker thread has run before they are gone here.
 */
import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { startSeededRegistry, type SeededRegistry } from '../support/busybox-image.js';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { installCopy } from '../support/installed-copy.js';
import { waitFor } from '../support/wait.js';

const cleanup = new Cleanup();
let engine: Engine;
let registry: SeededRegistry;
let dir: string;

before(async () => {
  dir = mkdtempSync(join(tmpdir(), 'upgrade-'));
  cleanup.add(async () => rmSync(dir, { recursive: true }));
  registry = await startSeededRegistry();
  cleanup.add(() => registry.stop());
  mkdirSync(join(dir, 'cdi'));
  const devices =
    'cdiVersion: 0.6.0\nkind: example.com/held\ndevices:\n  - name: one\n    containerEdits:\n' +
    '      env: [DEVICE=one]\n';
  writeFileSync(join(dir, 'cdi', 'x.yaml'), devices);
  const copy = installCopy(cleanup);
  const file = { features: { cdi: true }, 'cdi-spec-dirs': [join(dir, 'cdi')] };
  engine = await Engine.start(engined({ main: copy.main, file }));
  cleanup.add(() => engine.close());
  copy.delete();
  assert.equal(existsSync(copy.main), false);
});

after(() => cleanup.run());

const ok = (...args: readonly string[]): Promise<string> => engineOk(engine, [...args]);

/** These commands need worker threads: each is another task. */
async function useThreads(name: string): Promise<void> {
  await ok('pull', '-q', registry.reference);
  await ok(
    'run',
    '-d',
    '--name',
    name,
    '--health-cmd',
    'true',
    '--health-interval',
    '100ms',
    '-v',
    `${name}:/etc`,
    registry.reference,
    'sh',
    '-c',
    'echo said; sleep 1000',
  );
  const from = join(dir, `${name}-in`);
  writeFileSync(from, 'copied');
  await ok('cp', from, `${name}:/tmp/there`);
  await ok('cp', `${name}:/tmp/there`, join(dir, `${name}-out`));
  assert.equal(readFileSync(join(dir, `${name}-out`), 'utf8'), 'copied');
  assert.equal(await ok('exec', name, 'cat', '/tmp/there'), 'copied');
  assert.equal(await ok('logs', name), 'said');
  assert.match(await ok('diff', name), /A \/tmp\/there/);
  await waitFor(
    'the health check',
    async () => (await ok('inspect', '-f', '{{.State.Health.Status}}', name)) === 'healthy',
    60_000,
  );
  await ok('commit', name, `${name}:committed`);
  await ok('save', '-o', join(dir, `${name}.tar`), `${name}:committed`);
  await ok('export', '-o', join(dir, `${name}-root.tar`), name);
  await ok('import', join(dir, `${name}-root.tar`), `${name}:imported`);
  await ok('tag', `${name}:committed`, `${registry.host}/pushed/${name}`);
  await ok('push', '-q', `${registry.host}/pushed/${name}`);
  await ok('rm', '-f', '-v', name);
  await ok('rmi', `${name}:committed`, `${name}:imported`, `${registry.host}/pushed/${name}`, registry.reference);
  await ok('load', '-i', join(dir, `${name}.tar`));
  assert.equal(await ok('run', '--rm', `${name}:committed`, 'cat', '/tmp/there'), 'copied');
  await ok('system', 'df');
  await ok('rmi', `${name}:committed`);
  await ok('volume', 'rm', '-f', name);
}

test('everything goes on after the files of the daemon are gone', () => useThreads('first'));

test('threads that are started later do, too', async () => {
  const threads = (): number => readdirSync(`/proc/${engine.pid}/task`).length;
  const busy = threads();
  // One of them is spare for two minutes.
  await waitFor('idle threads to end', () => threads() < busy, 240_000);
  await useThreads('second');
});

test('so do parts that are rarely used', async () => {
  await ok('pull', '-q', registry.reference);
  assert.equal(
    await ok('run', '--rm', '--device', 'example.com/held=one', registry.reference, 'sh', '-c', 'echo $DEVICE'),
    'one',
  );
  assert.equal((await call(engine.socketPath, 'POST', '/engine/config/reload')).status, 200);
  assert.ok((await callJson<{ ID: string }>(engine.socketPath, 'GET', '/info')).ID);
});
