/**
 * A test file that does everything wrong: it makes one of each thing that a file can leave behind, and fails without
 * taking any of it away. `POISON=hang` makes it never end instead, `POISON=killed` ends it by SIGKILL.
 */
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, readdirSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { startSeededRegistry } from '../support/busybox-image.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { pullOk } from '../support/pulls.js';
import { POISON_LINK, POISON_PORT, POISON_SECONDS } from './names.js';

/** A control group with a process in it, in one hierarchy or, with control groups of version 2, in the only one. */
function fillControlGroup(): void {
  const root = '/sys/fs/cgroup';
  const dir = join(
    readdirSync(root).includes('pids') ? join(root, 'pids') : root,
    `${process.env['ENGINE_TEST_MARK'] ?? ''}poison`,
  );
  mkdirSync(dir);
  const child = spawn('sleep', [POISON_SECONDS], { detached: true, stdio: 'ignore' });
  child.unref();
  writeFileSync(join(dir, 'cgroup.procs'), String(child.pid));
}

test('this file fails', async () => {
  const registry = await startSeededRegistry();
  const engine = await Engine.start(engined());
  await pullOk(engine, registry.reference);
  await engineOk(engine, [
    'run',
    '-d',
    '-p',
    `${POISON_PORT}:80`,
    '--restart',
    'always',
    registry.reference,
    'sleep',
    POISON_SECONDS,
  ]);
  execFileSync('ip', ['link', 'add', POISON_LINK, 'type', 'bridge']);
  execFileSync('iptables', ['-A', 'FORWARD', '-j', 'DROP']);
  const mountPoint = join(tmpdir(), 'mounted');
  mkdirSync(mountPoint);
  execFileSync('mount', ['-t', 'tmpfs', 'poison', mountPoint]);
  if (process.env['POISON'] === 'hang') {
    const paused = await engineOk(engine, ['run', '-d', registry.reference, 'sleep', POISON_SECONDS]);
    await engineOk(engine, ['pause', paused]);
  }
  fillControlGroup();
  if (process.env['POISON'] === 'hang') await new Promise((resolve) => setTimeout(resolve, 2 ** 31 - 1));
  if (process.env['POISON'] === 'killed') process.kill(process.pid, 'SIGKILL');
  assert.fail('on purpose');
});
