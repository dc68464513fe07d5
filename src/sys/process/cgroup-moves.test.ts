import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, readlinkSync, rmdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import { CgroupMoves, threadLists } from './cgroup-moves.js';

const ROUNDS = 300;
const DEADLINE_MS = 10_000;

const groups = (): string => readFileSync('/proc/self/cgroup', 'utf8');

/** Returns the target of a descriptor; '' when it was closed meanwhile. */
function targetOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}

/** Returns the member lists of the groups of this process: that of version 2 and one of version 1, where there are. */
function ownLists(): string[] {
  const second = threadLists(groups()).map((path) => join(dirname(path), 'cgroup.procs'));
  const first = groups()
    .split('\n')
    .filter((line) => line !== '' && !line.startsWith('0:'))
    .map((line) => line.split(':'))
    .map(([, name = '', path = '']) => join('/sys/fs/cgroup', name.replace('name=', ''), path, 'cgroup.procs'));
  const isOwn = (path: string): boolean =>
    existsSync(path) && readFileSync(path, 'utf8').split('\n').includes(String(process.pid));
  return [second, first].flatMap((paths) => paths.filter(isOwn).slice(0, 1));
}

test('lists of threads are where the groups of a process are usually mounted', () => {
  assert.deepEqual(threadLists('9:name=systemd:/\n1:cpu,cpuacct:/a:b\n0::/system.slice/x:y.service\n'), [
    '/sys/fs/cgroup/system.slice/x:y.service/cgroup.threads',
    '/sys/fs/cgroup/unified/system.slice/x:y.service/cgroup.threads',
  ]);
  assert.deepEqual(threadLists('0::/\n')[0], '/sys/fs/cgroup/cgroup.threads');
  assert.deepEqual(threadLists('9:name=systemd:/\n'), []);
});

test('the moves of a long work end before it, and those of the next begin anew', async () => {
  const moves = new CgroupMoves();
  const timers = (): number => process.getActiveResourcesInfo().filter((kind) => kind === 'Timeout').length;
  const before = timers();
  for (const _ of [1, 2])
    await moves.during(async () => {
      // They begin when the work has.
      assert.equal(timers(), before);
      await turn();
      assert.equal(timers(), before + 1);
      const end = Date.now() + DEADLINE_MS;
      while (timers() > before && Date.now() < end) await turn();
      assert.equal(timers(), before, 'the moves go on');
    });
  await moves.close();
});

test('a process stays where it is, and where somebody moves it meanwhile', async (t) => {
  const lists = ownLists();
  assert.notDeepEqual(lists, []);
  const moves = new CgroupMoves();
  for (const own of lists) {
    const elsewhere = join(dirname(own), `engine-moves-${randomBytes(4).toString('hex')}`);
    mkdirSync(elsewhere);
    t.after(() => {
      writeFileSync(own, String(process.pid));
      rmdirSync(elsewhere);
    });
    const before = groups();
    await moves.during(() => sleep(50));
    assert.equal(groups(), before);
    for (let round = 0; round < ROUNDS; round++)
      await moves.during(async () => {
        writeFileSync(join(round % 2 === 0 ? elsewhere : dirname(own), 'cgroup.procs'), String(process.pid));
        const moved = groups();
        if (round % 2 === 0) assert.notEqual(moved, before);
        // Longer and longer, so that the moves meet the work of the other side at every point.
        await sleep(round % 12);
        assert.equal(groups(), moved, `round ${round}`);
      });
  }
  await assert.rejects(
    moves.during(() => Promise.reject(new Error('failed'))),
    /failed/,
  );
  const listed = (): string[] =>
    readdirSync('/proc/self/fd')
      .map((fd) => targetOf(`/proc/self/fd/${fd}`))
      .filter((path) => /cgroup\.(?:procs|threads)$|\/cgroup$/.test(path));
  assert.notDeepEqual(listed(), []);
  await moves.close();
  await moves.during(() => sleep(50));
  assert.deepEqual(listed(), [], 'files are open after the end');
});
