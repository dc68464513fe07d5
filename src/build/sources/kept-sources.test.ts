import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { KeptSources } from './kept-sources.js';

test('what a killed daemon was writing goes with the content that has no record', async () => {
  const directory = await mkdtemp(join(tmpdir(), 'kept-'));
  try {
    const release = (): Promise<void> => Promise.resolve();
    const openKept: ConstructorParameters<typeof KeptSources>[0]['openKept'] = async () => ({ directory, release });
    const kept = new KeptSources({ openKept });
    const torn = join(directory, 'facts.json.tmp-0123456789ab');
    await writeFile(torn, '{');
    await utimes(torn, new Date(0), new Date(0));
    const order = { id: 'it', type: 'source.git.checkout', description: 'it' } as const;
    await kept.use(order, new AbortController().signal, ({ change }) => change(async () => ({ fact: '1' })));
    assert.deepEqual((await readdir(directory)).toSorted(), ['content', 'facts.json']);
  } finally {
    await rm(directory, { recursive: true });
  }
});
