/** Blobs of pulled layers are bounded, and go with their layers. */
import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Digest, LayerInfo } from '../ports/storage.js';
import { PulledBlobs } from './pulled-blobs.js';

const digest = (letter: string): Digest => `sha256:${letter.repeat(64)}`;
const DAY_MS = 24 * 3600_000;

test('the last used are kept up to the limit, for a week, and only with their layers', async (t) => {
  const root = await mkdtemp(join(tmpdir(), 'engined-pulled-'));
  t.after(() => rm(root, { recursive: true }));
  const dir = join(root, 'blobs');
  const gone = new Set<Digest>();
  const layers = { find: (chainId: Digest) => (gone.has(chainId) ? undefined : ({ chainId } as LayerInfo)) };
  const images = { onChange: () => () => undefined };
  const blobs = new PulledBlobs({ dir, layers, images, maxBytes: 1000 });
  await blobs.load();
  const kept = async (): Promise<string> => {
    const letters = (await readdir(dir)).map((name) => name.charAt(0));
    return letters.toSorted((a, b) => a.localeCompare(b)).join('');
  };
  const keep = async (letter: string, bytes: number, days: number): Promise<void> => {
    const path = join(root, letter);
    await writeFile(path, Buffer.alloc(bytes));
    const used = new Date(Date.now() - days * DAY_MS);
    await utimes(path, used, used);
    await blobs.keep({ chainId: digest(letter), digest: digest('0') }, bytes, path);
  };
  await keep('a', 400, 3);
  await keep('b', 400, 1);
  await keep('c', 100, 8);
  await keep('d', 1001, 0);
  assert.equal(await kept(), 'abc', 'what is larger than the limit is not taken');
  await Promise.all([blobs.trim(), blobs.trim()]);
  assert.equal(blobs.removedBytes, 100, 'each file counts once');
  assert.equal(await kept(), 'ab');
  await (await blobs.open({ chainId: digest('a'), digest: digest('0') }, 400))?.close();
  await keep('e', 300, 0);
  await blobs.trim();
  assert.equal(await kept(), 'ae', 'the one that a push has just used stays');
  assert.equal(await blobs.open({ chainId: digest('e'), digest: digest('0') }, 299), undefined);
  assert.equal(await kept(), 'a', 'what is not whole goes');
  await writeFile(join(dir, 'x'), '');
  gone.add(digest('a'));
  await blobs.trim();
  assert.equal(await kept(), '');
});
