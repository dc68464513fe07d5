import assert from 'node:assert/strict';
import { mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { isEngineError } from '../../errors/engine-error.js';
import { lockDirectory } from './directory-lock.js';

test('a directory has one holder, under whatever name', async () => {
  const dir = await realpath(await mkdtemp(join(tmpdir(), 'engined-lock-')));
  try {
    const [path, link] = [join(dir, 'data'), join(dir, 'link')];
    await symlink(path, link);
    const lock = await lockDirectory('data-root', path);
    assert.equal(lock.path, path);
    await assert.rejects(lockDirectory('data-root', link), (error) => {
      assert.ok(isEngineError(error, 'conflict'));
      assert.equal(
        error.message,
        `data-root ${link} is in use by process ${process.pid}: stop it, or give this daemon a data-root of its own`,
      );
      return true;
    });
    await lock.release();
    const again = await lockDirectory('data-root', link);
    assert.equal(again.path, path);
    await again.release();
  } finally {
    await rm(dir, { recursive: true });
  }
});

test('what cannot be a directory', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'engined-lock-'));
  try {
    const path = join(dir, 'file');
    await writeFile(path, '');
    await assert.rejects(
      lockDirectory('exec-root', path),
      (error) => isEngineError(error, 'invalid') && error.message.startsWith(`exec-root ${path}: `),
    );
  } finally {
    await rm(dir, { recursive: true });
  }
});
