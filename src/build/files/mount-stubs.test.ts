import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { findPlainStubs, findStubs } from './mount-stubs.js';

test('places of mounts are found without a worker as by one, which gets those with links or many names', async () => {
  const rootfs = mkdtempSync(join(tmpdir(), 'engined-stubs-'));
  try {
    mkdirSync(join(rootfs, 'etc'));
    writeFileSync(join(rootfs, 'etc/hosts'), '');
    symlinkSync('etc', join(rootfs, 'link'));
    for (const destinations of [
      [],
      ['/etc/hosts'],
      ['/etc/hosts', '/etc/resolv.conf', '/etc/a/ü/c', '//etc/./a/d', '/etc/a'],
    ])
      assert.deepEqual(await findPlainStubs({ rootfs, destinations }), findStubs({ rootfs, destinations }));
    const many = Array.from({ length: 17 }, (_, at) => `/${at}`);
    for (const destinations of [['/etc/hosts/below'], ['/link/a'], ['/link'], ['/etc/../b'], many])
      assert.equal(await findPlainStubs({ rootfs, destinations }), undefined);
  } finally {
    rmSync(rootfs, { recursive: true });
  }
});
