import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { describeTree } from '../../../test/support/describe-tree.js';
import { makeDevice } from '../../sys/files/inode.js';
import { setXattr } from '../../sys/files/xattr.js';
import { diffTar } from './diff.js';

const temp = mkdtempSync(join(tmpdir(), 'diff-'));
after(() => rmSync(temp, { recursive: true }));

function tarOfTree(root: string): Buffer {
  const copies: Buffer[] = [];
  for (const chunk of diffTar(root)) copies.push(Buffer.from(chunk));
  return Buffer.concat(copies);
}

const namesIn = (tar: Buffer): string[] =>
  execFileSync('tar', ['-tf', '-'], { input: tar, encoding: 'utf8' }).trim().split('\n');

test('GNU tar unpacks the tar of a difference to the same tree', () => {
  const root = join(temp, 'upper');
  mkdirSync(root);
  execFileSync(
    'sh',
    [
      '-ec',
      `mkdir -p d/${'deep/'.repeat(30)} d/sticky; echo hello > d/file; : > d/empty; head -c 3000000 /dev/urandom > d/big
       echo x > d/${'n'.repeat(200)}; ln -s ${'t/'.repeat(80)}t d/long-target
       echo x > 'd/ümläut'; echo x > "$(printf 'd/\\377\\376')"
       ln d/file d/hard; ln -s file d/soft; ln d/soft d/hard-to-soft
       mkfifo d/fifo; mknod d/null c 1 3; mknod d/disk b 259 70000
       chown 3000000:4000000 d/big; chown -h 5:6 d/soft
       chmod 1777 d/sticky; chmod 4755 d/file; setcap cap_net_raw+ep d/empty
       touch -d '1960-01-01 UTC' d/empty; touch -d '2500-01-01 UTC' d/sticky
       now='-newermt 2024-01-01 -not -newermt 2400-01-01'
       find . $now -exec touch -h -d '2024-01-02 03:04:05' {} +`,
    ],
    { cwd: root },
  );
  setXattr(join(root, 'd/file'), 'user.comment', Buffer.from([0, 10, 61, 200]));
  const tar = tarOfTree(root);
  const unpacked = join(temp, 'unpacked');
  mkdirSync(unpacked);
  execFileSync('tar', ['--xattrs', '--xattrs-include=*', '--numeric-owner', '-xpf', '-'], {
    cwd: unpacked,
    input: tar,
  });
  const [, ...expected] = describeTree(root, { directoryTimes: true });
  const [, ...actual] = describeTree(unpacked, { directoryTimes: true });
  assert.deepEqual(actual, expected);
  assert.deepEqual(tarOfTree(root), tar, 'equal trees make equal tars');
});

test('deletions become whiteouts, sockets and names that read as whiteouts are left out', async () => {
  const root = join(temp, 'special');
  mkdirSync(join(root, 'opaque'), { recursive: true });
  setXattr(join(root, 'opaque'), 'trusted.overlay.opaque', Buffer.from('y'));
  makeDevice(join(root, 'opaque/gone'), 'char', 0, 0);
  writeFileSync(join(root, '.wh.file'), '');
  const server = createServer().listen(join(root, 'socket'));
  await new Promise((resolve) => server.once('listening', resolve));
  assert.deepEqual(namesIn(tarOfTree(root)), ['opaque/', 'opaque/.wh..wh..opq', 'opaque/.wh.gone']);
  server.close();
});
