/** Layers are completed by the threads that filled them, if that is short. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { LayerContent, LayerThreads } from '../../ports/storage.js';
import { settle } from './settle.js';

const PARENT = `sha256:${'0'.repeat(64)}` as const;
const CONTENT = { diffId: PARENT, parent: PARENT, sizeBytes: 0, implicitDirs: [], danglingLinks: [], whiteouts: [] };

/** Returns who was asked to complete a layer of these facts. */
async function askedFor(facts: Partial<LayerContent>, lowers: number, isAlone = false): Promise<string[]> {
  const asked: string[] = [];
  const as = (name: string): LayerThreads => ({ run: async () => void asked.push(name) });
  const directory = mkdtempSync(join(tmpdir(), 'settle-'));
  try {
    const threads = isAlone ? undefined : as('threads');
    const lowerDirs = Array.from({ length: lowers }, (_, index) => `/below/${index}`);
    await settle({ workers: as('workers'), threads }, directory, lowerDirs, { ...CONTENT, ...facts });
    return asked;
  } finally {
    rmSync(directory, { recursive: true });
  }
}

test('what is short is done by the threads that filled the layer', async () => {
  assert.deepEqual(await askedFor({ implicitDirs: ['', 'usr'] }, 9), ['threads']);
  assert.deepEqual(await askedFor({ whiteouts: ['etc/passwd'] }, 1), ['threads']);
  assert.deepEqual(await askedFor({ implicitDirs: [''] }, 9, true), ['workers']);
});

test('what copies files or looks for many is not, as others wait for those threads', async () => {
  assert.deepEqual(await askedFor({ danglingLinks: [{ path: 'a', target: 'b' }] }, 1), ['workers']);
  const many = Array.from({ length: 300 }, (_, index) => `dir-${index}`);
  assert.deepEqual(await askedFor({ implicitDirs: many }, 1), ['threads']);
  assert.deepEqual(await askedFor({ implicitDirs: many }, 100), ['workers']);
  assert.deepEqual(await askedFor({ whiteouts: many }, 100), ['workers']);
});

test('a layer that wants nothing from those below asks nobody', async () => {
  assert.deepEqual(await askedFor({}, 3), []);
});
