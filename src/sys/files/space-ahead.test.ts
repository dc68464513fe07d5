import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { closeSync, fstatSync, mkdirSync, mkdtempSync, openSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { gainsBySpace, SpaceAhead } from './space-ahead.js';

const MIB = 1024 * 1024;
const temp = mkdtempSync(join(tmpdir(), 'space-ahead-'));
const mounts: string[] = [];
after(() => {
  for (const path of mounts.reverse()) execFileSync('umount', [path]);
  rmSync(temp, { recursive: true });
});

function mounted(name: string, type: string, options: string, source = 'none'): string {
  const path = join(temp, name);
  mkdirSync(path);
  execFileSync('mount', ['-t', type, '-o', options, source, path], { stdio: 'pipe' });
  mounts.push(path);
  return path;
}

function onExt4(): string {
  const image = join(temp, 'image');
  execFileSync('truncate', ['-s', '64M', image]);
  execFileSync('mkfs.ext4', ['-q', '-F', image], { stdio: 'pipe' });
  return mounted('ext4', 'ext4', 'loop', image);
}

function overlayOn(disk: string, name: string): string {
  const [lower, upper, work] = ['lower', 'upper', 'work'].map((part) => join(disk, part));
  for (const path of [lower, upper, work]) mkdirSync(path ?? '');
  return mounted(name, 'overlay', `lowerdir=${lower},upperdir=${upper},workdir=${work}`);
}

/** Returns how much more room than bytes a file of 8 MiB has when three of them are written. */
function bytesAhead(directory: string, upperGains: boolean): number {
  const fd = openSync(join(directory, 'file'), 'wx');
  try {
    const space = new SpaceAhead(fd, 8 * MIB, upperGains);
    for (let at = 0; at < 3 * MIB; at += MIB) {
      space.willWrite(at, at + MIB);
      writeSync(fd, Buffer.alloc(MIB, 1));
    }
    return fstatSync(fd).blocks * 512 - 3 * MIB;
  } finally {
    closeSync(fd);
  }
}

test('files on ext4 get space ahead, also through an overlay', () => {
  const disk = onExt4();
  const overlay = overlayOn(disk, 'overlay-on-ext4');
  assert.ok(gainsBySpace(disk));
  assert.ok(bytesAhead(disk, false) >= MIB);
  assert.ok(bytesAhead(overlay, gainsBySpace(disk)) >= MIB);
});

test('files in memory get none, whose bytes it would clear twice, also through an overlay', () => {
  const memory = mounted('memory', 'tmpfs', 'size=64m');
  const overlay = overlayOn(memory, 'overlay-on-memory');
  assert.equal(bytesAhead(memory, true), 0);
  assert.equal(bytesAhead(overlay, gainsBySpace(memory)), 0);
});
