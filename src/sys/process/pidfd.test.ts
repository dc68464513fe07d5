import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { waitFor } from '../../../test/support/wait.js';
import { exitCodeOf, openPidfd } from './pidfd.js';

const stateOf = (pid: number): string | undefined =>
  /^State:\s+(\S)/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1];

test('the exit code is known of a process that nobody waits for, but not before its end', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'pidfd-'));
  const go = join(dir, 'go');
  const endings = ['exit 7', 'kill -KILL $$', 'exec sleep 1000'];
  const begun = endings.map((end) => `sh -c 'until [ -e ${go} ]; do sleep 0.01; done; ${end}' & echo $!`);
  // The program that the shell becomes knows nothing of its children.
  const parent = spawn('sh', ['-c', `${begun.join('\n')}\nexec sleep 1000`], { stdio: ['ignore', 'pipe', 'ignore'] });
  let text = '';
  parent.stdout.setEncoding('utf8').on('data', (piece: string) => (text += piece));
  await waitFor('the children', () => text.split('\n').length > endings.length);
  const pids = text.trim().split('\n').map(Number);
  const living = pids.at(-1) ?? assert.fail(text);
  const fds = pids.map(openPidfd);
  try {
    await waitFor('the shell to go', () => readFileSync(`/proc/${parent.pid}/comm`, 'utf8') === 'sleep\n');
    assert.deepEqual(fds.map(exitCodeOf), [undefined, undefined, undefined]);
    writeFileSync(go, '');
    await waitFor('the others to end', () => pids.every((pid) => pid === living || stateOf(pid) === 'Z'));
    assert.deepEqual(fds.map(exitCodeOf), [7, 137, undefined]);
  } finally {
    for (const fd of fds) closeSync(fd);
    process.kill(living, 'SIGKILL');
    const ended = once(parent, 'exit');
    parent.kill('SIGKILL');
    await ended;
    rmSync(dir, { recursive: true });
  }
});
