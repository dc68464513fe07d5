/** The pages of the program are let go while threads are busy. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createHash } from 'node:crypto';
import { test } from 'node:test';
import { mapProgram } from '../../../test/support/program-pages.js';
import { waitFor } from '../../../test/support/wait.js';
import { isAtWork, lookedAfter, threadStarts } from './busy-memory.js';
import { residentBytes } from './resident-bytes.js';

/** Releases are counted in processor time, of which a wait alone uses next to none. */
const WORK = Buffer.alloc(4 << 20);

/** Works until less than half of what is mapped now is left. */
async function workUntilLetGo(): Promise<void> {
  const { mapped } = await residentBytes();
  const isLetGo = async (): Promise<boolean> => {
    createHash('sha256').update(WORK).digest();
    return (await residentBytes()).mapped < mapped / 2;
  };
  await waitFor('pages to be let go', isLetGo, undefined, 1);
}

test('pages that only the beginning needed are let go while the work lasts', async () => {
  await mapProgram();
  await lookedAfter(workUntilLetGo);
});

test('pages that are mapped again at once are not taken for needed for ever', async () => {
  await mapProgram();
  await lookedAfter(async () => {
    await workUntilLetGo();
    await mapProgram();
    await workUntilLetGo();
  });
});

test('pages that the start of a thread has mapped again are let go soon', async () => {
  const usedMs = (): number => process.cpuUsage().user / 1000;
  await mapProgram();
  await lookedAfter(async () => {
    await workUntilLetGo();
    threadStarts();
    await mapProgram();
    const before = usedMs();
    await workUntilLetGo();
    // It would be a second if they were taken for needed.
    assert.ok(usedMs() - before < 700, `it took ${usedMs() - before} ms of work`);
  });
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

test('the process is at work until the last of its tasks is over, also when one has failed', async () => {
  const end = new AbortController();
  const failing = lookedAfter(() => Promise.reject(new Error('broken')));
  const lasting = lookedAfter(() => once(end.signal, 'abort'));
  await assert.rejects(failing, /broken/);
  assert.ok(isAtWork());
  end.abort();
  await lasting;
  assert.ok(!isAtWork());
});
