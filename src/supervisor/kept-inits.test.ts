import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readdirSync, readlinkSync, rmSync } from 'node:fs';
import { release, tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { silentLog } from '../../test/support/silent-log.js';
import { KeptInits } from './kept-inits.js';
import { Status } from './proto/gen/task_types_pb.js';

const [major = 0, minor = 0] = release().split('.').map(Number.parseFloat);
const skip = major > 6 || (major === 6 && minor >= 15) ? false : 'the kernel does not tell exit codes';
const dir = mkdtempSync(join(tmpdir(), 'inits-'));
const children: ChildProcess[] = [];
after(() => {
  for (const child of children) child.kill('SIGKILL');
  rmSync(dir, { recursive: true, force: true });
});

function begin(end: string): ChildProcess & { pid: number } {
  const child = spawn('sh', ['-c', `read line; ${end}`], { stdio: ['pipe', 'ignore', 'inherit'] });
  children.push(child);
  assert.ok(child.pid);
  return child as ChildProcess & { pid: number };
}

async function end(child: ChildProcess): Promise<void> {
  const ended = once(child, 'exit');
  child.stdin?.end('\n');
  await ended;
}

const pidfds = (): number =>
  readdirSync('/proc/self/fd').filter((fd) => {
    try {
      return readlinkSync(`/proc/self/fd/${fd}`).includes('pidfd');
    } catch {
      return false; // The directory's own descriptor.
    }
  }).length;

test('the next daemon knows how a process ended that nobody else remembers', { skip }, async () => {
  const first = new KeptInits(dir, silentLog);
  await first.load();
  const begun = ['exit 7', 'kill -TERM $$', 'exit 0', 'exit 9', 'exit 3'].map(begin);
  const [seven, killed, zero, deleted, living] = begun;
  assert.ok(seven && killed && zero && deleted && living);
  begun.forEach(({ pid }, i) => first.add(`task${i}`, pid));
  await Promise.all(begun.map((_, i) => first.kept(`task${i}`)));
  const open = pidfds();
  assert.equal(first.exitCode('task0'), undefined, 'it lives');
  await end(seven);
  await end(deleted);
  assert.equal(first.exitCode('task0'), 7);
  first.remove('task3');
  assert.equal(first.exitCode('task3'), undefined);
  first.close();
  assert.equal(pidfds(), open - begun.length);

  await Promise.all([end(killed), end(zero)]);
  // Twice, since the one that reads it may be killed as well.
  await new KeptInits(dir, silentLog).load();
  const next = new KeptInits(dir, silentLog);
  await next.load();
  const ended = next.ended().map(({ id, status, exitStatus }) => `${id} ${status} ${exitStatus}`);
  const { STOPPED } = Status;
  assert.deepEqual(ended.sort(), [`task0 ${STOPPED} 7`, `task1 ${STOPPED} ${128 + 15}`, `task2 ${STOPPED} 0`]);
  assert.equal(next.get('task4'), undefined, 'it lives');
  await end(living);
  assert.equal(next.get('task4')?.exitStatus, 3);
  for (let i = 0; i < begun.length; i++) next.remove(`task${i}`);
  next.close();
  const last = new KeptInits(dir, silentLog);
  await last.load();
  assert.deepEqual(last.ended(), []);
  assert.deepEqual(readdirSync(dir), [], 'their keepers have ended');
});
