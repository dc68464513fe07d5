/** A test file that fails stays alone: whatever it made is gone when it ends, and the next file does not notice. */
import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { POISON_SECONDS } from '../isolation/names.js';
import { waitFor } from '../support/wait.js';

/** This file is in dist/test. */
const RUNNER = fileURLToPath(new URL('../../../scripts/run-tests.mjs', import.meta.url));
const fixture = (name: string): string => fileURLToPath(new URL(`../isolation/${name}.js`, import.meta.url));

/** Removes the variable by which the outer test runner would take the inner one's report for its own protocol. */
function environment(way: string): NodeJS.ProcessEnv {
  const { NODE_TEST_CONTEXT: _, ...env } = process.env;
  return { ...env, POISON: way };
}

/** Processes of the poisonous file, those in its containers too: they are found by their argument. */
function processes(): string[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => {
      try {
        return readFileSync(join('/proc', pid, 'cmdline'), 'utf8');
      } catch {
        return '';
      }
    })
    .filter((line) => line.includes(POISON_SECONDS));
}

/** All control groups of the poisonous file carry the mark of this one. */
const MARK = process.env['ENGINE_TEST_MARK'] ?? 'none';

/** Those of the poisonous file, in all hierarchies. */
function controlGroups(): string[] {
  const root = '/sys/fs/cgroup';
  const hierarchies = [
    root,
    ...readdirSync(root, { withFileTypes: true })
      .filter((entry) => entry.isDirectory())
      .map(({ name }) => join(root, name)),
  ];
  return hierarchies
    .flatMap((path) => readdirSync(path))
    .filter((name) => name.endsWith('poison') || name.startsWith(`${MARK}t`));
}

function assertNothingIsLeft(files: readonly string[]): void {
  assert.deepEqual(processes(), []);
  assert.deepEqual(controlGroups(), []);
  assert.deepEqual(readdirSync(tmpdir()), files);
}

for (const way of ['fail', 'killed']) {
  test(`a file that ends by ${way} stays alone`, () => {
    const before = readdirSync(tmpdir());
    const { status, stdout, stderr } = spawnSync(process.execPath, [RUNNER, fixture('poison'), fixture('neighbour')], {
      encoding: 'utf8',
      env: environment(way),
    });
    const output = stdout + stderr;
    assert.equal(status, 1, output);
    assert.match(output, /✖ test\/isolation\/poison/, output);
    assert.match(output, /✔ this file passes/, output);
    assert.doesNotMatch(output, /✖ test\/isolation\/neighbour/, output);
    assert.match(output, /ℹ tests 2\n/, output);
    assert.match(output, /ℹ pass 1\nℹ fail 1\n/, output);
    assertNothingIsLeft(before);
  });
}

test('a run that is interrupted takes its sandboxes away', async () => {
  const before = readdirSync(tmpdir());
  const child = spawn(process.execPath, [RUNNER, fixture('poison')], { stdio: 'ignore', env: environment('hang') });
  let hasEnded = false;
  const ended = once(child, 'exit').then(() => (hasEnded = true));
  await waitFor(
    'the file to hang',
    () => processes().length > 1 && controlGroups().some((name) => name.endsWith('poison')),
    120_000,
  );
  // A terminal signals each process of a program, and those hand the signal on: it comes more than once.
  for (const signal of ['SIGINT', 'SIGTERM'] as const) child.kill(signal);
  await waitFor(
    'its end',
    () => {
      if (!hasEnded) child.kill('SIGTERM');
      return hasEnded;
    },
    120_000,
  );
  await ended;
  assertNothingIsLeft(before);
});
