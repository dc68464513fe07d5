import assert from 'node:assert/strict';
import {
  chmodSync,
  chownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { getXattr, listXattrs, setXattr } from '../sys/files/xattr.js';
import { makeDevice, makeFifo } from '../sys/files/inode.js';
import { copyInode } from './copy-attributes.js';
import { copySmall, lookOf } from './copy-regular.js';

const directory = mkdtempSync(join(tmpdir(), 'copy-regular-'));
after(() => rmSync(directory, { recursive: true, force: true }));

/** They make whiteouts, replaced directories and other owners of a copy that overlayfs or fuse-overlayfs mounts. */
const MARKS = ['user.overlay.opaque', 'user.fuseoverlayfs.opaque', 'user.containers.override_stat'];

function made(name: string, content: string | Buffer): string {
  const path = join(directory, name);
  writeFileSync(path, content);
  return path;
}

const statOf = (path: string): ReturnType<typeof lstatSync> & object => lstatSync(path, { bigint: true });

function copied(from: string, name: string): string {
  const to = join(directory, name);
  copyInode(from, statOf(from) as never, to);
  return to;
}

test('small and large files keep content, owner, mode, attributes and time, whatever directory they come into', () => {
  const inherited = join(directory, 'inherited');
  mkdirSync(inherited);
  chownSync(inherited, 0, 77);
  chmodSync(inherited, 0o2755);
  for (const [name, bytes] of [
    ['empty', 0],
    ['small', 25_000],
    ['limit', 256 * 1024],
    ['large', 256 * 1024 + 1],
  ] as const) {
    const from = made(name, Buffer.alloc(bytes, name));
    chownSync(from, 12, 0);
    chmodSync(from, 0o6751);
    setXattr(from, 'user.note', Buffer.from(name));
    for (const mark of MARKS) setXattr(from, mark, Buffer.from('y'));
    utimesSync(from, 1, 1_000_000_000.123456);
    const before = statOf(from) as unknown as Record<string, bigint>;
    const to = copied(from, `inherited/${name}`);
    const now = statOf(to) as unknown as Record<string, bigint>;
    for (const field of ['uid', 'gid', 'mode', 'size', 'mtimeNs']) assert.equal(now[field], before[field], field);
    assert.ok(readFileSync(to).equals(readFileSync(from)), name);
    assert.deepEqual(listXattrs(to), ['user.note']);
    assert.equal(getXattr(to, 'user.note')?.toString(), name);
  }
});

test('a name that is taken stays as it is, and what is no small file (any more) is not waited for', () => {
  const from = made('source', 'new');
  const taken = made('taken', 'old');
  assert.throws(() => copied(from, 'taken'), { code: 'EEXIST' });
  assert.equal(readFileSync(taken, 'utf8'), 'old');
  const stat = statOf(from) as never;
  const secret = made('secret-of-host', 'secret');
  for (const replace of [
    () => symlinkSync(secret, from),
    () => makeFifo(from),
    // No driver has this number: an attempt to open it fails otherwise.
    () => makeDevice(from, 'char', 3000, 7),
  ]) {
    rmSync(from);
    replace();
    assert.throws(() => copyInode(from, stat, join(directory, 'other')), { code: 'ENOENT' });
    assert.equal(lstatSync(join(directory, 'other'), { throwIfNoEntry: false }), undefined);
  }
  rmSync(from);
  writeFileSync(from, Buffer.alloc(300 * 1024));
  const grown = join(directory, 'grown');
  assert.equal(
    copySmall({ at: from, stat, isStill: false }, grown, lookOf(stat), () => undefined),
    false,
  );
  assert.equal(lstatSync(grown, { throwIfNoEntry: false }), undefined);
});

test('what is in the place of a large file since it was seen is neither followed nor waited for', () => {
  const from = made('seen', Buffer.alloc(300 * 1024));
  const secret = made('secret', Buffer.alloc(300 * 1024, 'of the host'));
  const stat = statOf(from) as never;
  const to = join(directory, 'copy-of-seen');
  for (const replace of [() => symlinkSync(secret, from), () => makeFifo(from)]) {
    rmSync(from);
    replace();
    assert.throws(
      () => copyInode(from, stat, to),
      ({ code }: { code?: string }) => code === 'ENOENT' || code === 'ELOOP',
    );
    assert.equal(lstatSync(to, { throwIfNoEntry: false }), undefined);
  }
});
