import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, openSync, readFileSync, readlinkSync } from 'node:fs';
import { test, type TestContext } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { pipeRoom } from '../files/fd.js';
import { widenPipe } from './process-pipe.js';

const ROOM = 1 << 18;

/** Runs a shell until the test ends, and returns its process id. */
async function running(t: TestContext, command: string): Promise<number> {
  const child = spawn('sh', ['-c', command], { stdio: ['pipe', 'inherit', 'inherit'], detached: true });
  await once(child, 'spawn');
  const pid = child.pid ?? assert.fail();
  t.after(() => process.kill(-pid, 'SIGKILL'));
  return pid;
}

function outputOf(pid: number): string {
  return readlinkSync(`/proc/${pid}/fd/1`);
}

function roomOf(pid: number): number {
  const fd = openSync(`/proc/${pid}/fd/1`, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    return pipeRoom(fd);
  } finally {
    closeSync(fd);
  }
}

/** The first process of a pipeline, as soon as it prints into its pipe. */
async function writerOf(shell: number): Promise<number> {
  for (;;) {
    const [writer = 0] = readFileSync(`/proc/${shell}/task/${shell}/children`, 'utf8').split(' ').map(Number);
    if (writer !== 0 && outputOf(writer).startsWith('pipe:')) return writer;
    await sleep(1);
  }
}

test('the pipe of another process gets room, and keeps what it has more', async (t) => {
  const writer = await writerOf(await running(t, 'sleep 1000 | sleep 1000'));
  await widenPipe(writer, 1, ROOM);
  assert.equal(roomOf(writer), ROOM);
  await widenPipe(writer, 1, 1 << 12);
  assert.equal(roomOf(writer), ROOM);
});

test('another file in the place of the pipe is left alone, and one that is missing is told', async (t) => {
  const shell = await running(t, 'exec >/dev/null; read line');
  while (outputOf(shell) !== '/dev/null') await sleep(1);
  await widenPipe(shell, 1, ROOM);
  await assert.rejects(widenPipe(shell, 99, ROOM), { code: 'ENOENT' });
});
