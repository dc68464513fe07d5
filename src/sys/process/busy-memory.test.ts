/** The pages of the program are let go while threads are busy. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mapProgram } from '../../../test/support/program-pages.js';
import { waitFor } from '../../../test/support/wait.js';
import { lookedAfter } from './busy-memory.js';
import { residentBytes } from './resident-bytes.js';

test('pages that only the beginning needed are let go while the work lasts', async () => {
  await mapProgram();
  const { mapped } = await residentBytes();
  const after = await lookedAfter(() =>
    waitFor('pages to be let go', async () => {
      const now = await residentBytes();
      return now.mapped < mapped / 2 ? now.mapped : undefined;
    }),
  );
  assert.ok(after < mapped);
});

test('the result of the work is handed on, and so is its failure', async () => {
  assert.equal(await lookedAfter(async () => 3), 3);
  await assert.rejects(
    lookedAfter(async () => {
      throw new Error('broken');
    }),
    /broken/,
  );
});
