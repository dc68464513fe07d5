/** Tests layers that no image should contain: the extractor refuses them, or keeps them inside the layer. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, lstatSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { tarOf } from '../../../test/support/image-builder.js';
import { assertComesBack, contentOf, LayerUnpacking, makeOddTree } from '../../../test/support/layer-unpacking.js';
import { randomNumbers } from '../../../test/support/random-numbers.js';
import { EngineError } from '../../errors/engine-error.js';
import { getXattr, listXattrs, setXattr } from '../../sys/files/xattr.js';
import { settleLayer } from '../tasks/settle-layer.js';
import { LayerExtractor } from './layer-extractor.js';

const unpacking = new LayerUnpacking();
const { temp } = unpacking;

test('names stay inside: absolute ones and detours are resolved, ways out are refused', () => {
  const layer = unpacking.unpack(
    tarOf([
      { path: '/etc/absolute', content: '1' },
      { path: './/a//b/../c/./d', content: '2' },
      { path: 'usr/lib/', type: 'directory' },
      { path: 'lib', type: 'symlink', target: 'usr/lib' },
      { path: 'lib/through', content: '3' },
      { path: 'abs', type: 'symlink', target: '/usr/new' },
      { path: 'abs/made', content: '4' },
      { path: 'usr/up', type: 'symlink', target: '../lib/../lib/deep' },
      { path: 'usr/up/file', content: '5' },
      { path: 'out', type: 'symlink', target: '../../../../etc' },
    ]),
  );
  assert.deepEqual(
    [contentOf(layer, 'etc/absolute'), contentOf(layer, 'a/c/d'), contentOf(layer, 'usr/lib/through')],
    ['1', '2', '3'],
  );
  assert.deepEqual([contentOf(layer, 'usr/new/made'), contentOf(layer, 'usr/lib/deep/file')], ['4', '5']);

  unpacking.refuses([{ path: '../out' }], 'TAR_BREAKOUT');
  unpacking.refuses([{ path: 'a/../../out' }], 'TAR_BREAKOUT');
  unpacking.refuses([{ path: '/..' }], 'TAR_BREAKOUT');
  unpacking.refuses(
    [{ path: 'a/', type: 'directory' }, { path: 'a/x', type: 'symlink', target: '../..' }, { path: 'a/x/out' }],
    'TAR_BREAKOUT',
  );
  unpacking.refuses([{ path: 'x', type: 'symlink', target: '../../tmp' }, { path: 'x/out' }], 'TAR_BREAKOUT');
  unpacking.refuses([{ path: 'x', type: 'link', target: '../../etc/passwd' }], 'TAR_BREAKOUT');
  unpacking.refuses([{ path: 'loop', type: 'symlink', target: 'loop' }, { path: 'loop/x' }], 'TAR_LINK');
  unpacking.refuses([{ path: 'f' }, { path: 'f/x' }], 'TAR_NOT_DIRECTORY');
  unpacking.refuses([{ path: '.wh...' }], 'TAR_WHITEOUT');
  unpacking.refuses([{ path: 'a/.wh..' }], 'TAR_WHITEOUT');
  unpacking.refuses([{ path: 'a/.wh.' }], 'TAR_WHITEOUT');
  unpacking.refuses([{ path: './', content: 'root' }], 'TAR_ROOT');
  unpacking.refuses([{ path: '', type: 'symlink', target: 'x' }], 'TAR_ROOT');
});

test('a hard link follows no link out, and is left to the commit when its target is elsewhere', () => {
  unpacking.refuses(
    [
      { path: 'd', type: 'symlink', target: '/../../etc' },
      { path: 'x', type: 'link', target: 'd/../../passwd' },
    ],
    'TAR_BREAKOUT',
  );
  unpacking.refuses(
    [
      { path: 'd/', type: 'directory' },
      { path: 'x', type: 'link', target: 'd' },
    ],
    'TAR_LINK',
  );
  unpacking.refuses([{ path: 'x', type: 'link', target: 'x' }], 'TAR_LINK');
  unpacking.refuses([{ path: '.wh.f' }, { path: 'x', type: 'link', target: 'f' }], 'TAR_LINK');
  const layer = unpacking.unpack(
    tarOf([
      { path: 'd', type: 'symlink', target: '/etc' },
      { path: 'x', type: 'link', target: 'd/passwd' },
      { path: 'y', type: 'link', target: '/usr/bin/y' },
      { path: 'z', type: 'link', target: 'nowhere' },
      { path: 'z', content: 'not a link after all' },
      { path: 'soft', type: 'symlink', target: '/etc/passwd' },
      { path: 'hard', type: 'link', target: 'soft' },
    ]),
  );
  assert.deepEqual(layer.danglingLinks, [
    { path: 'x', target: 'd/passwd' },
    { path: 'y', target: 'usr/bin/y' },
  ]);
  assert.equal(lstatSync(join(layer.diffDir, 'hard')).isSymbolicLink(), true);
});

test('a hard link that waits for the layers below is not made where a link took the place of its directory', () => {
  const outside = join(temp, 'outside-of-links');
  mkdirSync(outside);
  const lowerDirs = [unpacking.unpack(tarOf([{ path: 'evil', content: 'evil' }])).diffDir];
  for (const directory of ['a', 'a/b']) {
    const layer = unpacking.unpack(
      tarOf([
        { path: `${directory}/`, type: 'directory' },
        { path: `${directory}/planted`, type: 'link', target: 'evil' },
        { path: 'stays/kept', type: 'link', target: 'evil' },
        { path: 'a', type: 'symlink', target: outside },
      ]),
    );
    assert.deepEqual(layer.danglingLinks, [{ path: 'stays/kept', target: 'evil' }]);
    settleLayer({ ...layer, lowerDirs });
    assert.equal(contentOf(layer, 'stays/kept'), 'evil');
    // The one who makes the links looks, too.
    const danglingLinks = [{ path: 'a/planted', target: 'evil' }];
    assert.throws(() => settleLayer({ ...layer, danglingLinks, lowerDirs }), { code: 'TAR_LINK' });
  }
  assert.deepEqual(readdirSync(outside), []);
});

test("attributes that steer overlayfs are not a layer's to set", () => {
  const layer = unpacking.unpack(
    tarOf([
      {
        path: 'd/',
        type: 'directory',
        xattrs: {
          'trusted.overlay.redirect': '/etc',
          'trusted.overlay.opaque': 'y',
          'user.fuseoverlayfs.origin': 'y',
          'user.containers.override_stat': '0:0:4755',
          'user.kept': 'yes',
        },
      },
    ]),
  );
  const names = listXattrs(join(layer.diffDir, 'd')).filter((name) => !name.startsWith('security.'));
  assert.deepEqual(names, ['user.kept']);
  assert.equal(getXattr(join(layer.diffDir, 'd'), 'user.kept')?.toString(), 'yes');
});

test('damaged archives are refused', () => {
  const tar = tarOf([{ path: 'a', content: 'x'.repeat(2000) }]);
  for (const length of [1, 511, 513, 1024, 2511]) unpacking.refuses(tar.subarray(0, length), 'TAR_TRUNCATED');
  unpacking.refuses(Buffer.from('this is no tar'.repeat(100)), 'TAR_HEADER');
  const flipped = Buffer.from(tar);
  flipped[3] = 0x41;
  unpacking.refuses(flipped, 'TAR_HEADER');
  unpacking.refuses(Buffer.concat([Buffer.alloc(512), tar]), 'TAR_HEADER');
  unpacking.refuses([{ path: 'n'.repeat(256) }]);
  unpacking.refuses([{ path: 'l', type: 'symlink', target: 't'.repeat(5000) }]);
  unpacking.refuses([{ path: 'n', type: 'character-device', major: 5000, minor: 1 }], 'DEVICE_NUMBER');
  const pax = tarOf([{ path: 'n'.repeat(150) }]);
  const at = pax.indexOf('path=');
  for (const [offset, byte] of [
    [-2, 0x39],
    [-4, 0x20],
    [0, 0x3d],
    [7, 0],
  ] as const) {
    const broken = Buffer.from(pax);
    broken[at + offset] = byte;
    assert.throws(() => assert.ok(unpacking.unpack(broken).entries === 0), Error);
  }
  assert.throws(() => unpacking.unpack(tar, { limitBytes: 1000 }), { kind: 'invalid', code: 'LAYER_TOO_LARGE' });
});

test('sparse and unknown entries are refused by name', () => {
  const dir = join(temp, 'sparse');
  mkdirSync(dir);
  execFileSync('truncate', ['-s', '10M', join(dir, 'hole')]);
  for (const format of ['gnu', 'pax']) {
    const tar = execFileSync('tar', [`--format=${format}`, '--sparse', '-cf', '-', '.'], { cwd: dir });
    unpacking.refuses(tar, 'TAR_SPARSE');
  }
  const volume = execFileSync('tar', ['--label=name', '-cf', '-', '.'], { cwd: dir, maxBuffer: 1 << 25 });
  unpacking.refuses(volume, 'TAR_TYPE');
});

test('an extractor that failed or finished takes nothing more', () => {
  const extractor = new LayerExtractor({ diffDir: temp, tarSplitPath: join(temp, 'closed') });
  assert.throws(() => extractor.write(Buffer.alloc(512, 1)), { kind: 'invalid' });
  assert.throws(() => extractor.write(Buffer.alloc(512)), { kind: 'internal' });
  assert.throws(() => extractor.finish(), { kind: 'internal' });
  extractor.abort();
});

test('cut, mutated and shuffled archives never write outside, hang or fail in an unforeseen way', () => {
  const random = randomNumbers(20_240_229);
  const source = makeOddTree(join(temp, 'source'));
  setXattr(join(source, 'plain/blocks'), 'user.comment', Buffer.from([0, 61, 10, 255]));
  const canary = join(temp, 'canary');
  writeFileSync(canary, 'untouched');
  const base = execFileSync('tar', ['--format=pax', '--xattrs', '-cf', '-', '--exclude=random', '.'], {
    cwd: source,
    maxBuffer: 1 << 26,
  });
  const hostile = tarOf([
    { path: 'd', type: 'symlink', target: '../..' },
    { path: 'd/canary', content: 'owned' },
    { path: 'e', type: 'symlink', target: temp },
    { path: 'e/canary', content: 'owned' },
    { path: 'f', type: 'link', target: 'e/canary' },
    { path: '.wh.e' },
  ]);
  const blocks = [...Array(base.length / 512).keys()].map((i) => base.subarray(i * 512, (i + 1) * 512));
  const before = readdirSync(temp).sort();
  const fuzzed = join(temp, 'fuzz');
  let completed = 0;
  for (let round = 0; round < 200; round++) {
    let tar: Buffer;
    if (round % 4 === 0) tar = Buffer.from(base.subarray(0, random(base.length)));
    else if (round % 4 === 1)
      tar = Buffer.concat(Array.from({ length: 60 }, () => blocks[random(blocks.length)] ?? Buffer.alloc(512)));
    else tar = Buffer.concat([base.subarray(0, 512 * random(100)), hostile.subarray(512 * random(8))]);
    for (let i = random(4); i > 0 && tar.length > 0; i--) resealed(tar, random(tar.length), random(256));
    mkdirSync(join(fuzzed, 'diff'), { recursive: true });
    const layer = { diffDir: join(fuzzed, 'diff'), tarSplitPath: join(fuzzed, 'tar-split') };
    const extractor = new LayerExtractor(layer);
    try {
      for (let at = 0; at < tar.length;) {
        const end = at + 1 + random(3000);
        extractor.write(tar.subarray(at, end));
        at = end;
      }
      extractor.finish();
      completed++;
      assertComesBack(layer, tar);
    } catch (error) {
      assert.ok(error instanceof EngineError, String(error));
      assert.equal(error.kind, 'invalid', error.message);
    }
    assert.equal(readFileSync(canary, 'utf8'), 'untouched');
    rmSync(fuzzed, { recursive: true });
  }
  assert.deepEqual(readdirSync(temp).sort(), before);
  assert.ok(completed > 10, `${completed} archives were good enough to be unpacked`);
  assert.equal(existsSync(join(temp, 'etc')), false);
});

/** Changes a byte and makes the checksum of its block right again, as far as that is a header. */
function resealed(tar: Buffer, at: number, byte: number): void {
  tar[at] = byte;
  const block = tar.subarray(at - (at % 512), at - (at % 512) + 512);
  if (block.length < 512) return;
  block.fill(0x20, 148, 156);
  let sum = 0;
  for (const value of block) sum += value;
  block.write(`${sum.toString(8).padStart(6, '0')}\0 `, 148, 'latin1');
}
