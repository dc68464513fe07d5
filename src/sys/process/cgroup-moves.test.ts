import assert from 'node:assert/strict';
import { mkdirSync, readdirSync, readFileSync, readlinkSync, rmdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { CgroupMoves, memberLists } from './cgroup-moves.js';

const groups = (): string => readFileSync('/proc/self/cgroup', 'utf8');

/** Returns the target of a descriptor; '' when it was closed meanwhile. */
function targetOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return '';
  }
}

test('lists of members are where the groups of a process are usually mounted', () => {
  assert.deepEqual(memberLists('9:name=systemd:/\n1:cpu,cpuacct:/a:b\n0::/system.slice/x.service\n'), [
    '/sys/fs/cgroup/systemd/cgroup.procs',
    '/sys/fs/cgroup/cpu,cpuacct/a:b/cgroup.procs',
    '/sys/fs/cgroup/system.slice/x.service/cgroup.procs',
    '/sys/fs/cgroup/unified/system.slice/x.service/cgroup.procs',
  ]);
});

test('a process stays where it is, and where somebody moves it meanwhile', async (t) => {
  const own = memberLists(groups()).find((path) => {
    try {
      return readFileSync(path, 'utf8').split('\n').includes(String(process.pid));
    } catch {
      return false;
    }
  });
  assert.ok(own);
  const before = groups();
  const elsewhere = join(dirname(own), `engine-moves-${process.pid}`);
  mkdirSync(elsewhere);
  t.after(() => {
    writeFileSync(own, String(process.pid));
    rmdirSync(elsewhere);
  });
  const moves = new CgroupMoves();
  await moves.during(async () => {
    await sleep(50);
    assert.equal(groups(), before);
    // A move to the own group that is under way at that moment undoes one of somebody else, but not all of them.
    let moved: string;
    let tries = 0;
    do {
      writeFileSync(join(elsewhere, 'cgroup.procs'), String(process.pid));
      moved = groups();
      assert.notEqual(moved, before);
      await sleep(100);
    } while (groups() !== moved && ++tries < 50);
    assert.equal(groups(), moved);
  });
  await assert.rejects(
    moves.during(() => Promise.reject(new Error('failed'))),
    /failed/,
  );
  const listed = (): string[] =>
    readdirSync('/proc/self/fd')
      .map((fd) => targetOf(`/proc/self/fd/${fd}`))
      .filter((path) => /cgroup\.procs$|\/cgroup$/.test(path));
  assert.notDeepEqual(listed(), []);
  await moves.close();
  await moves.during(() => sleep(50));
  assert.deepEqual(listed(), [], 'files are open after the end');
});
