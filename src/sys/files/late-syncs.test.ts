import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { LateSyncs } from './late-syncs.js';

test('a file is there before it is synced, and who waits for the sync is told when it fails', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'engined-late-'));
  try {
    const syncs = new LateSyncs(() => undefined);
    const [one, gone, full] = [join(dir, 'one'), join(dir, 'gone'), join(dir, 'full')];
    await syncs.write(one, 'first');
    assert.equal(await readFile(one, 'utf8'), 'first');
    await syncs.write(gone, 'second');
    await rm(gone);
    await syncs.sync();
    // One that cannot be named leaves nothing.
    await mkdir(join(full, 'below'), { recursive: true });
    await assert.rejects(syncs.write(full, 'third'));
    assert.deepEqual((await readdir(dir)).sort(), ['full', 'one']);
    // A sync that has failed is made again with the next one.
    await syncs.write(one, 'fourth');
    await rm(one);
    await symlink(one, one);
    await assert.rejects(syncs.sync(), { code: 'ELOOP' });
    await assert.rejects(syncs.sync(), { code: 'ELOOP' });
    await rm(one);
    await syncs.sync();
  } finally {
    await rm(dir, { recursive: true });
  }
});
