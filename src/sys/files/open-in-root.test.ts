import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { Worker } from 'node:worker_threads';
import { closeFd } from './fd.js';
import { O_PATH, openInRoot, openNested } from './open-in-root.js';

// It renames a directory elsewhere without end, as a container can.
const RENAMES = `
  const { renameSync } = require('node:fs');
  const { workerData, parentPort } = require('node:worker_threads');
  parentPort.postMessage('begins');
  for (;;) { renameSync(workerData + '/a', workerData + '/b'); renameSync(workerData + '/b', workerData + '/a'); }
`;

test('a path that rises is opened while others rename, which makes the kernel ask for another call', async (t) => {
  const root = mkdtempSync(join(tmpdir(), 'open-'));
  for (const directory of ['a', 'in/here']) mkdirSync(join(root, directory), { recursive: true });
  writeFileSync(join(root, 'in/file'), '');
  const renames = new Worker(RENAMES, { eval: true, workerData: root });
  const inside = openNested(root, ['in'], O_PATH);
  t.after(async () => {
    await renames.terminate();
    closeFd(inside);
    rmSync(root, { recursive: true });
  });
  await new Promise((resolve) => renames.once('message', resolve));
  for (let opened = 0; opened < 60_000; opened += 1) closeFd(openInRoot(inside, 'here/../../here/../file'));
  assert.throws(() => openInRoot(inside, 'here/../none'), { code: 'ENOENT' });
});
