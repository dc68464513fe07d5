import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

/** The sources; this file is in dist/src/actors. */
const ACTORS = fileURLToPath(new URL('../../../src/actors', import.meta.url));

test('each machine has a test that fails until every event met every state', () => {
  const files = readdirSync(ACTORS, { recursive: true, encoding: 'utf8' });
  const tests = files
    .filter((file) => file.endsWith('.test.ts') && basename(file) !== 'machines.test.ts')
    .map((file) => readFileSync(join(ACTORS, file), 'utf8'))
    .filter((text) => text.includes('.assertComplete()'));
  const machines = files.filter((file) => file.endsWith('.machine.ts')).map((file) => basename(file, '.ts'));
  assert.ok(machines.length >= 9, `${machines.length} machines were found`);
  assert.deepEqual(
    machines.filter((machine) => !tests.some((text) => text.includes(`/${machine}.js'`))),
    [],
  );
});
