import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { execFileSync } from 'node:child_process';
import { isEngineError } from '../errors/engine-error.js';
import { lookUpUser } from './user-lookup.js';

let dir: string;

function rootfs(name: string, passwd: string, group: string): string {
  const root = join(dir, name);
  mkdirSync(join(root, 'etc'), { recursive: true });
  writeFileSync(join(root, 'etc/passwd'), passwd);
  writeFileSync(join(root, 'etc/group'), group);
  return root;
}

before(() => {
  dir = mkdtempSync(join(tmpdir(), 'engined-user-'));
});
after(() => rmSync(dir, { recursive: true, force: true }));

const PASSWD = 'root:x:0:0:root:/root:/bin/sh\n\nbroken line\nweb:x:1000:1001::/srv:/bin/sh\n';
const GROUP = 'root:x:0:\nweb:x:1001:\naudio:x:29:web,root\nvideo:x:44:web\n';

test('names, numbers and groups resolve as the container sees them', async () => {
  const root = rootfs('usual', PASSWD, GROUP);
  const cases: [string, string[], { uid: number; gid: number; additionalGids: number[] }][] = [
    ['', [], { uid: 0, gid: 0, additionalGids: [0, 29] }],
    ['web', [], { uid: 1000, gid: 1001, additionalGids: [1001, 29, 44] }],
    ['1000', [], { uid: 1000, gid: 1001, additionalGids: [1001, 29, 44] }],
    ['web:audio', [], { uid: 1000, gid: 29, additionalGids: [29] }],
    ['4242', [], { uid: 4242, gid: 0, additionalGids: [0] }],
    ['4242:4343', [], { uid: 4242, gid: 4343, additionalGids: [4343] }],
    ['web:', ['video', '7'], { uid: 1000, gid: 1001, additionalGids: [1001, 29, 44, 7] }],
  ];
  for (const [user, groupAdd, expected] of cases)
    assert.deepEqual(await lookUpUser(root, user, groupAdd), expected, user);
});

test('what is not there is refused with the known texts', async () => {
  const root = rootfs('refusals', PASSWD, GROUP);
  const cases: [string, string[], RegExp][] = [
    ['nobody', [], /^unable to find user nobody: no matching entries in passwd file$/],
    ['web:nogroup', [], /^unable to find group nogroup: no matching entries in group file$/],
    ['web', ['nogroup'], /^unable to find group nogroup: no matching entries in group file$/],
    ['4294967295', [], /^uids and gids must be in range 0-2147483647$/],
    ['-1', [], /^uids and gids must be in range 0-2147483647$/],
  ];
  for (const [user, groupAdd, message] of cases) {
    await assert.rejects(
      lookUpUser(root, user, groupAdd),
      (error) => isEngineError(error, 'invalid') && message.test(error.message),
      user,
    );
  }
});

test('a number out of range is no name of the image', async () => {
  const far = ['4294967296', '2147483648', '-1', '18446744073709551616'];
  const entries = far.map((name) => `${name}:x:0:0::/:/bin/sh\n`).join('');
  const root = rootfs('far', `${PASSWD}${entries}`, `${GROUP}${far.map((name) => `${name}:x:0:\n`).join('')}`);
  for (const number of far)
    for (const [user, groupAdd] of [
      [number, []],
      [`web:${number}`, []],
      ['web', [number]],
    ] as const)
      await assert.rejects(lookUpUser(root, user, groupAdd), /^Error: uids and gids must be in range|must be in range/);
});

test('a root filesystem without the files knows numbers only', async () => {
  const root = join(dir, 'empty');
  mkdirSync(root);
  assert.deepEqual(await lookUpUser(root, '', []), { uid: 0, gid: 0, additionalGids: [0] });
});

test('links lead nowhere but into the root filesystem', async () => {
  writeFileSync(join(dir, 'outside'), 'evil:x:666:666::/:/bin/sh\n');
  const root = rootfs('links', PASSWD, GROUP);
  rmSync(join(root, 'etc/passwd'));
  symlinkSync(join(dir, 'outside'), join(root, 'etc/passwd'));
  await assert.rejects(lookUpUser(root, 'evil', []), /unable to find user evil/);
  rmSync(join(root, 'etc/passwd'));
  symlinkSync('../../outside', join(root, 'etc/passwd'));
  await assert.rejects(lookUpUser(root, 'evil', []), /unable to find user evil/);
  writeFileSync(join(root, 'real'), PASSWD);
  rmSync(join(root, 'etc/passwd'));
  symlinkSync('/real', join(root, 'etc/passwd'));
  assert.equal((await lookUpUser(root, 'web', [])).uid, 1000);
});

test('a FIFO in place of the file does not hang the lookup', async () => {
  const root = rootfs('fifo', PASSWD, GROUP);
  rmSync(join(root, 'etc/passwd'));
  execFileSync('mkfifo', [join(root, 'etc/passwd')]);
  await assert.rejects(
    lookUpUser(root, 'web', []),
    (error) => isEngineError(error, 'invalid') && error.message.includes('not a regular file'),
  );
});

test('a device in place of the file is not opened, which would have effects on the host', async () => {
  const root = rootfs('device', PASSWD, GROUP);
  rmSync(join(root, 'etc/group'));
  // There is no driver for it: the kernel says so to those who open it.
  execFileSync('mknod', [join(root, 'etc/group'), 'c', '4095', '1']);
  await assert.rejects(lookUpUser(root, 'web', []), /\/etc\/group of the container: not a regular file/);
});

test('large files are read whole, in parts; too large ones are refused', async () => {
  const filler = 'someone:x:7:7::/:/bin/sh\n'.repeat(40_000);
  const crowd = 'someone,'.repeat(20_000);
  const groups = `29:x:3:\nagain:x:29:\nvideo:x:44:\ncrowd:x:45:${crowd}web\nnear:x:46:${crowd}website\n`;
  const root = rootfs('large', `${filler}${PASSWD}`, `${filler}${groups}`);
  const expected = { uid: 1000, gid: 1001, additionalGids: [1001, 45, 44, 3, 29] };
  assert.deepEqual(await lookUpUser(root, 'web', ['video', '29', '029']), expected);

  for (const [name, passwd, group, words] of [
    ['size', 'x'.repeat(4 * 1024 * 1024 + 1), GROUP, /larger than 4194304 bytes/],
    ['line', PASSWD, `many:x:1:${'a,'.repeat(600_000)}`, /line of the passwd or group file is too long/],
    ['groups', PASSWD, Array.from({ length: 65_537 }, (_, at) => `g:x:${at}:web`).join('\n'), /65536 groups at most/],
  ] as const)
    await assert.rejects(lookUpUser(rootfs(name, passwd, group), 'web', []), words);
});
