import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { detachMount } from '../mount/mount.js';
import { makeTemporaryPlaces } from './temporary-directory.js';

test('what a crash has mounted is taken away, and the files below the mount stay', async (t) => {
  const root = mkdtempSync(join(tmpdir(), 'places-'));
  const [source, target] = [join(root, 'source'), join(root, 'tmp', 'build', 'root')];
  for (const directory of [source, target]) mkdirSync(directory, { recursive: true });
  writeFileSync(join(source, 'kept'), '');
  execFileSync('mount', ['--bind', source, target]);
  t.after(async () => {
    await detachMount(target);
    rmSync(root, { recursive: true });
  });
  const { tmpDir } = await makeTemporaryPlaces(root, '', 'id');
  assert.deepEqual(readdirSync(tmpDir), []);
  assert.equal(existsSync(join(source, 'kept')), true);
});
