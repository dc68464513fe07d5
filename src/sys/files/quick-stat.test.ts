import assert from 'node:assert/strict';
import {
  closeSync,
  fstatSync,
  lchownSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  readFileSync,
  rmSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
  type BigIntStats,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { closeFd } from './fd.js';
import { makeDevice, makeFifo, makeSocket, setTimes } from './inode.js';
import { quickOpen, quickStat, quickStatOpen } from './quick-stat.js';

const root = mkdtempSync(join(tmpdir(), 'quick-stat-'));
const fd = openSync(root, 'r');
test.after(() => {
  closeSync(fd);
  rmSync(root, { recursive: true });
});

const below = (name: string): string => `/proc/self/fd/${fd}/${name}`;
const nodeStat = (path: string | Buffer): BigIntStats => lstatSync(path, { bigint: true });

/** All that Node knows of a file, and of which kind it is. */
function assertSame(found: BigIntStats | undefined, wanted: BigIntStats, what: string): void {
  for (const key of Object.keys(wanted) as (keyof BigIntStats)[])
    assert.deepEqual(found?.[key], wanted[key], `${key} of ${what}`);
  assert.deepEqual(kindsOf(found), kindsOf(wanted), `the kind of ${what}`);
}

function kindsOf(stat: BigIntStats | undefined): readonly (boolean | undefined)[] {
  return [
    stat?.isFile(),
    stat?.isDirectory(),
    stat?.isSymbolicLink(),
    stat?.isFIFO(),
    stat?.isSocket(),
    stat?.isCharacterDevice(),
    stat?.isBlockDevice(),
  ];
}

test('files look as they do for Node, by their paths and below a descriptor', () => {
  const at = (name: string): string => join(root, name);
  writeFileSync(at('file'), 'bytes');
  mkdirSync(at('directory'));
  symlinkSync('nowhere', at('link'));
  makeFifo(at('fifo'));
  makeSocket(at('socket'));
  makeDevice(at('characters'), 'char', 4000, 70_000);
  makeDevice(at('blocks'), 'block', 8, 1);
  writeFileSync(at('vast'), '');
  truncateSync(at('vast'), 2 ** 33 + 7);
  lchownSync(at('vast'), 4_000_000_001, 4_000_000_002);
  setTimes(at('file'), -1_000_000_000, 999_999_999);
  setTimes(at('directory'), 2 ** 33, 1);
  for (const name of ['file', 'directory', 'link', 'fifo', 'socket', 'characters', 'blocks', 'vast', '.']) {
    const wanted = nodeStat(`${root}/${name}`);
    assertSame(quickStat(`${root}/${name}`), wanted, name);
    assertSame(quickStat(below(name)), wanted, `${name} below a descriptor`);
  }
  assertSame(quickStatOpen(fd), fstatSync(fd, { bigint: true }), 'an open directory');
});

test('paths that only look like one below a descriptor are those of Node', () => {
  for (const path of [`/proc/self/fd/${fd}`, below(''), below('/'), `/proc/self/fd/./${fd}`])
    assertSame(quickStat(path), nodeStat(path), path);
});

test('names are bytes, and end nowhere before their end', () => {
  const name = Buffer.from([0x6e, 0xc3, 0xa9, 0xff]);
  writeFileSync(Buffer.concat([Buffer.from(`${root}/`), name]), 'other');
  const wanted = nodeStat(Buffer.concat([Buffer.from(`${root}/`), name]));
  for (const path of [`${root}/`, below('')]) assertSame(quickStat(path + name.toString('latin1')), wanted, 'a name');
  const file = quickOpen(below(name.toString('latin1')));
  assert.equal(readFileSync(file, 'utf8'), 'other');
  closeFd(file);
  writeFileSync(join(root, 'cut'), '');
  assert.throws(() => quickStat(below('cut\0off')), { code: 'ERR_INVALID_ARG_VALUE' });
  assert.throws(() => quickOpen(below('cut\0off')), { code: 'ERR_INVALID_ARG_VALUE' });
});

test('a file that is missing is none, and other failures are those of Node', () => {
  writeFileSync(join(root, 'plain'), '');
  symlinkSync('plain', join(root, 'to-plain'));
  assert.equal(quickStat(below('missing')), undefined);
  assert.throws(() => quickStat(below('plain/in')), { code: 'ENOTDIR', syscall: 'lstat' });
  assert.throws(() => quickStatOpen(-1), { code: 'ERR_OUT_OF_RANGE' });
  assert.throws(() => quickOpen(below('missing')), { code: 'ENOENT', syscall: 'open' });
  assert.throws(() => quickOpen(below('to-plain')), { code: 'ELOOP', syscall: 'open' });
});
