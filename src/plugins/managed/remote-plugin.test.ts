import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { RegistryAccess } from '../../registry/access.js';
import { downloadBlob } from './remote-plugin.js';

test('of a layer that the disk has no room for nothing is asked for', async () => {
  const file = join(tmpdir(), 'layer-of-a-plugin');
  const order = { path: 'a/b', file, onBytes: () => assert.fail('it came') };
  const descriptor = { digest: `sha256:${'a'.repeat(64)}`, sizeBytes: 2 ** 60 } as const;
  await assert.rejects(downloadBlob({} as RegistryAccess, { ...order, descriptor }, new AbortController().signal), {
    code: 'ENOSPC',
    message: /no space left on device/,
  });
  assert.equal(existsSync(file), false);
});
