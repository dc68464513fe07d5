import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { closeSync, mkdtempSync, openSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { begin, doom, end, newLife } from '../ffi/unkilled.js';
import { WriteBehind } from './write-behind.js';

const MIB = 1024 * 1024;
const temp = mkdtempSync(join(tmpdir(), 'write-behind-'));
const mounts: string[] = [];
after(() => {
  for (const path of mounts) execFileSync('umount', [path]);
  rmSync(temp, { recursive: true });
});

test('all pieces are written where they belong, and their memory is free when it is said so', () => {
  const path = join(temp, 'file');
  const fd = openSync(path, 'wx');
  const behind = new WriteBehind();
  const content = randomBytes(64 * MIB + 5);
  const buffers = Array.from({ length: 3 }, () => Buffer.allocUnsafeSlow(MIB));
  for (let at = 0, turn = 0; at < content.length; at += MIB, turn++) {
    const buffer = buffers[turn % buffers.length];
    assert.ok(buffer);
    behind.waitFor(buffer.buffer);
    assert.equal(behind.uses(buffer.buffer), false);
    // If it were not free, these bytes would come into the file in place of those that were lent before.
    const length = content.copy(buffer, 0, at);
    behind.write(fd, buffer.subarray(0, length), at);
  }
  behind.settle();
  assert.ok(buffers.every(({ buffer }) => !behind.uses(buffer)));
  closeSync(fd);
  assert.ok(readFileSync(path).equals(content));
});

test('a full disk is told by the next call, as a write tells it, and what is on its way ends before its memory', () => {
  const disk = join(temp, 'disk');
  execFileSync('mkdir', [disk]);
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=3m', 'none', disk], { stdio: 'pipe' });
  mounts.push(disk);
  const path = join(disk, 'file');
  const fd = openSync(path, 'wx');
  const behind = new WriteBehind();
  const piece = randomBytes(2 * MIB);
  behind.write(fd, piece, 0);
  behind.write(fd, piece, piece.length);
  behind.pause();
  assert.equal(behind.uses(piece.buffer), false);
  assert.throws(() => behind.write(fd, piece, 0), { code: 'ENOSPC' });
  assert.throws(() => behind.settle(), { code: 'ENOSPC' });
  behind.abandon();
  behind.settle();
  closeSync(fd);
  // As much as there is room for has been written.
  assert.ok(readFileSync(path).equals(Buffer.concat([piece, piece.subarray(0, MIB)])));
});

test('the errors of a file that cannot be written are those of a write', () => {
  const behind = new WriteBehind();
  const fd = openSync(join(temp, 'file'), 'r');
  behind.write(fd, Buffer.alloc(MIB), 0);
  assert.throws(() => behind.settle(), { code: 'EBADF', syscall: 'write' });
  closeSync(fd);
});

test('a thread is not killed while its memory is written', async () => {
  const life = newLife();
  await begin(life, async () => undefined);
  const fd = openSync(join(temp, 'kept'), 'wx');
  const behind = new WriteBehind();
  behind.write(fd, Buffer.alloc(MIB), 0);
  assert.equal(doom(life), 'later');
  behind.pause();
  assert.equal(doom(life), 'kill');
  end(life);
  closeSync(fd);
});
