import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { processesOf } from './program-processes.js';

test('the processes of a program are found by its name, also by a long one, and no others', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'processes-'));
  const run = async (name: string): Promise<{ pid: number; end: () => Promise<unknown> }> => {
    const file = join(dir, name);
    copyFileSync('/bin/sleep', file);
    const child = spawn(file, ['1000'], { stdio: 'ignore' });
    await once(child, 'spawn');
    return { pid: child.pid ?? 0, end: () => (child.kill(), once(child, 'exit')) };
  };
  const short = await run('a-program');
  const long = await run('a-program-with-a-long-name');
  try {
    assert.deepEqual(await processesOf('a-program'), [short.pid]);
    assert.deepEqual(await processesOf('a-program-with-a-long-name'), [long.pid]);
    assert.deepEqual(await processesOf('a-program-wi'), []);
  } finally {
    await Promise.all([short.end(), long.end()]);
    rmSync(dir, { recursive: true });
  }
  assert.deepEqual(await processesOf('a-program'), []);
});
