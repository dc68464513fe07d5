import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { describeTree } from '../../../test/support/describe-tree.js';
import { type LayerEntry, tarOf } from '../../../test/support/image-builder.js';
import { randomNumbers } from '../../../test/support/random-numbers.js';
import { EngineError, isEngineError } from '../../errors/engine-error.js';
import { getXattr, setXattr } from '../../sys/files/xattr.js';
import { assembleTar } from './assemble.js';
import { type ExtractResult, LayerExtractor } from './layer-extractor.js';

const temp = mkdtempSync(join(tmpdir(), 'extractor-'));
after(() => rmSync(temp, { recursive: true }));

let count = 0;

interface Unpacked extends ExtractResult {
  readonly diffDir: string;
  readonly tarSplitPath: string;
}

function unpack(
  tar: Buffer,
  { chunkBytes = 65_536, limitBytes }: { readonly chunkBytes?: number; readonly limitBytes?: number } = {},
): Unpacked {
  const dir = join(temp, String(count++));
  const diffDir = join(dir, 'diff');
  const tarSplitPath = join(dir, 'tar-split');
  mkdirSync(diffDir, { recursive: true });
  const extractor = new LayerExtractor({ diffDir, tarSplitPath, ...(limitBytes === undefined ? {} : { limitBytes }) });
  for (let at = 0; at < tar.length; at += chunkBytes) extractor.write(tar.subarray(at, at + chunkBytes));
  return { ...extractor.finish(), diffDir, tarSplitPath };
}

function assertComesBack(layer: Pick<Unpacked, 'diffDir' | 'tarSplitPath'>, tar: Buffer): void {
  const hash = createHash('sha256');
  for (const chunk of assembleTar(layer)) hash.update(chunk);
  assert.equal(hash.digest('hex'), createHash('sha256').update(tar).digest('hex'), 'the tar comes back byte by byte');
}

function refuses(entries: readonly LayerEntry[] | Buffer, code?: string): void {
  const tar = Buffer.isBuffer(entries) ? entries : tarOf(entries);
  assert.throws(
    () => unpack(tar),
    (error) => isEngineError(error, 'invalid') && (code === undefined || error.code === code),
  );
}

const read = (layer: Unpacked, path: string): string => readFileSync(join(layer.diffDir, path), 'utf8');

function makeSource(): string {
  const source = join(temp, 'source');
  mkdirSync(source);
  const shell = (script: string): void => void execFileSync('sh', ['-ec', script], { cwd: source });
  shell(`
    mkdir -p plain/${'deep/'.repeat(40)} sticky
    echo hello > plain/file; : > plain/empty; head -c 70000 /dev/urandom > plain/random; head -c 1024 /dev/zero > plain/blocks
    echo long > plain/${'n'.repeat(180)}; ln -s ${'t/'.repeat(90)}t plain/long-target
    echo utf > 'plain/ümläut'; printf bytes > "$(printf 'plain/\\377\\376')"
    ln plain/file plain/hard; ln -s file plain/soft; ln plain/soft plain/hard-to-soft; ln -s /etc/shadow plain/absolute
    mkfifo plain/fifo; mknod plain/null c 1 3; mknod plain/disk b 259 70000
    chmod 4755 plain/file; chmod 2750 plain; chmod 1777 sticky; chmod 0 plain/empty
    chown 1000:1001 plain/random; chown -h 5:6 plain/soft; chown 65534:65534 sticky
    touch -d '2001-02-03 04:05:06.123456789' plain/file; touch -h -d '1999-01-01 00:00:00.5' plain/soft
    touch -d '1969-12-31 23:59:58.25 UTC' plain/random; touch -d '2020-01-01' plain sticky
  `);
  return source;
}

const source = makeSource();

for (const format of ['gnu', 'oldgnu', 'pax', 'v7', 'ustar']) {
  test(`a ${format} archive unpacks as GNU tar unpacks it, in whatever portions it comes`, () => {
    // What the old formats cannot hold is left out of them.
    const excluded =
      format === 'v7' || format === 'ustar'
        ? [
            '--exclude=long-target',
            '--exclude=nnn*',
            '--exclude=disk',
            '--exclude=null',
            '--exclude=random',
            '--exclude=deep',
          ]
        : [];
    if (format === 'v7') excluded.push('--exclude=fifo');
    if (format === 'pax') {
      setXattr(join(source, 'plain/blocks'), 'user.comment', Buffer.from([0, 61, 10, 255]));
      execFileSync('setcap', ['cap_net_raw+ep', join(source, 'plain/random')]);
    }
    const tar = execFileSync(
      'tar',
      [`--format=${format}`, '--xattrs', '--xattrs-include=*', '--sort=name', ...excluded, '-cf', '-', '.'],
      { cwd: source, maxBuffer: 1 << 26 },
    );
    const expected = join(temp, `expected-${format}`);
    mkdirSync(expected);
    execFileSync('tar', ['--xattrs', '--xattrs-include=*', '--numeric-owner', '-xpf', '-'], {
      cwd: expected,
      input: tar,
    });
    const described = describeTree(expected).join('\n');
    if (format === 'pax') assert.match(described, /user\.comment=003d0aff[^]*security\.capability=\w+/);
    for (const chunkBytes of [1, 7, 511, 512, 513, 4096, 1 << 20]) {
      const layer = unpack(tar, { chunkBytes });
      assert.deepEqual(
        describeTree(layer.diffDir, { directoryTimes: true }),
        describeTree(expected, { directoryTimes: true }),
      );
      assert.deepEqual([layer.implicitDirs, layer.danglingLinks, layer.whiteouts], [[], [], []]);
      assert.equal(layer.tarBytes, tar.length);
      assertComesBack(layer, tar);
    }
  });
}

test('the end of an archive may be missing, short, long or followed by anything', () => {
  const tar = tarOf([{ path: 'a', content: 'abc' }]);
  const body = tar.subarray(0, 1024);
  for (const odd of [
    Buffer.alloc(0),
    body,
    body.subarray(0, 512 + 3), // without the padding of the content
    tar.subarray(0, tar.length - 512),
    Buffer.concat([tar, Buffer.alloc(9728)]),
    Buffer.concat([tar, Buffer.from('anything at all')]),
    Buffer.concat([tar, tarOf([{ path: '../b' }])]),
  ]) {
    const layer = unpack(odd);
    assert.deepEqual(readdirSync(layer.diffDir), odd.length === 0 ? [] : ['a']);
    assertComesBack(layer, odd);
  }
});

test('a later entry takes the place of an earlier one of whatever type', () => {
  const kinds: readonly LayerEntry[] = [
    { path: 'x', content: 'first' },
    { path: 'x/', type: 'directory' },
    { path: 'x/in', content: 'inside' },
    { path: 'x', type: 'symlink', target: 'in' },
    { path: 'x', content: 'second' },
    { path: 'x', type: 'fifo' },
    { path: 'x', type: 'link', target: 'y' },
    { path: 'x', content: 'third' },
    { path: 'x', content: '' },
    { path: 'x', type: 'character-device', major: 1, minor: 3 },
    { path: 'x/', type: 'directory', mode: 0o711 },
    { path: 'x/in', content: 'inside again' },
  ];
  const tar = tarOf([{ path: 'y', content: 'why' }, ...kinds]);
  const layer = unpack(tar);
  assert.equal(read(layer, 'x/in'), 'inside again');
  assert.equal(lstatSync(join(layer.diffDir, 'x')).mode & 0o7777, 0o711);
  assert.equal(read(layer, 'y'), 'why');
  assertComesBack(layer, tar);
});

test('a replaced file that has another name stays under it', () => {
  const tar = tarOf([
    { path: 'a', content: 'one' },
    { path: 'b', type: 'link', target: 'a' },
    { path: 'a', content: 'two' },
    { path: 'b', content: 'three' },
    { path: 'a', type: 'link', target: 'b' },
    { path: 'a', type: 'link', target: 'a' },
  ]);
  const layer = unpack(tar);
  assert.deepEqual([read(layer, 'a'), read(layer, 'b')], ['three', 'three']);
  assertComesBack(layer, tar);
});

test('whiteouts become those of overlayfs, metadata of other drivers nothing', () => {
  const tar = tarOf([
    { path: 'dir/.wh.gone', content: 'with content, oddly' },
    { path: 'dir/.wh..wh..opq' },
    { path: '.wh..wh.plnk/', type: 'directory' },
    { path: '.wh..wh.plnk/1.2', content: 'ignored' },
    { path: '.wh..wh.aufs', content: 'ignored' },
    { path: '.wh.file' },
    { path: 'file', content: 'here again' },
    { path: '.wh.made/' },
    { path: 'made/', type: 'directory' },
    { path: 'late/', type: 'directory' },
    { path: '.wh.late' },
    { path: '.wh.parent' },
    { path: 'parent/child' },
    { path: 'kept', content: 'kept' },
    { path: '.wh.kept' },
  ]);
  const layer = unpack(tar);
  const opaque = (path: string): string | undefined =>
    getXattr(join(layer.diffDir, path), 'trusted.overlay.opaque')?.toString();
  assert.deepEqual(readdirSync(layer.diffDir).sort(), ['dir', 'file', 'kept', 'late', 'made', 'parent']);
  const gone = lstatSync(join(layer.diffDir, 'dir/gone'));
  assert.equal(gone.isCharacterDevice() && gone.rdev === 0, true);
  assert.deepEqual([opaque('dir'), opaque('made'), opaque('late'), opaque('parent')], ['y', 'y', 'y', 'y']);
  assert.equal(read(layer, 'file'), 'here again');
  assert.deepEqual(layer.whiteouts, ['dir/gone']);
  assert.deepEqual(layer.implicitDirs, ['', 'dir']);
  assert.equal(layer.sizeBytes, 14);
  assertComesBack(layer, tar);
});

test('names stay inside: absolute ones and detours are resolved, ways out are refused', () => {
  const layer = unpack(
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
    [read(layer, 'etc/absolute'), read(layer, 'a/c/d'), read(layer, 'usr/lib/through')],
    ['1', '2', '3'],
  );
  assert.deepEqual([read(layer, 'usr/new/made'), read(layer, 'usr/lib/deep/file')], ['4', '5']);

  refuses([{ path: '../out' }], 'TAR_BREAKOUT');
  refuses([{ path: 'a/../../out' }], 'TAR_BREAKOUT');
  refuses([{ path: '/..' }], 'TAR_BREAKOUT');
  refuses(
    [{ path: 'a/', type: 'directory' }, { path: 'a/x', type: 'symlink', target: '../..' }, { path: 'a/x/out' }],
    'TAR_BREAKOUT',
  );
  refuses([{ path: 'x', type: 'symlink', target: '../../tmp' }, { path: 'x/out' }], 'TAR_BREAKOUT');
  refuses([{ path: 'x', type: 'link', target: '../../etc/passwd' }], 'TAR_BREAKOUT');
  refuses([{ path: 'loop', type: 'symlink', target: 'loop' }, { path: 'loop/x' }], 'TAR_LINK');
  refuses([{ path: 'f' }, { path: 'f/x' }], 'TAR_NOT_DIRECTORY');
  refuses([{ path: '.wh...' }], 'TAR_WHITEOUT');
  refuses([{ path: 'a/.wh..' }], 'TAR_WHITEOUT');
  refuses([{ path: 'a/.wh.' }], 'TAR_WHITEOUT');
  refuses([{ path: './', content: 'root' }], 'TAR_ROOT');
  refuses([{ path: '', type: 'symlink', target: 'x' }], 'TAR_ROOT');
});

test('a hard link follows no link out, and is left to the commit when its target is elsewhere', () => {
  refuses(
    [
      { path: 'd', type: 'symlink', target: '/../../etc' },
      { path: 'x', type: 'link', target: 'd/../../passwd' },
    ],
    'TAR_BREAKOUT',
  );
  refuses(
    [
      { path: 'd/', type: 'directory' },
      { path: 'x', type: 'link', target: 'd' },
    ],
    'TAR_LINK',
  );
  refuses([{ path: 'x', type: 'link', target: 'x' }], 'TAR_LINK');
  refuses([{ path: '.wh.f' }, { path: 'x', type: 'link', target: 'f' }], 'TAR_LINK');
  const layer = unpack(
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

test("attributes that steer overlayfs are not a layer's to set", () => {
  const layer = unpack(
    tarOf([
      {
        path: 'd/',
        type: 'directory',
        xattrs: { 'trusted.overlay.redirect': '/etc', 'trusted.overlay.opaque': 'y', 'user.kept': 'yes' },
      },
    ]),
  );
  assert.equal(getXattr(join(layer.diffDir, 'd'), 'trusted.overlay.redirect'), undefined);
  assert.equal(getXattr(join(layer.diffDir, 'd'), 'trusted.overlay.opaque'), undefined);
  assert.equal(getXattr(join(layer.diffDir, 'd'), 'user.kept')?.toString(), 'yes');
});

test('damaged archives are refused', () => {
  const tar = tarOf([{ path: 'a', content: 'x'.repeat(2000) }]);
  for (const length of [1, 511, 513, 1024, 2511]) refuses(tar.subarray(0, length), 'TAR_TRUNCATED');
  refuses(Buffer.from('this is no tar'.repeat(100)), 'TAR_HEADER');
  const flipped = Buffer.from(tar);
  flipped[3] = 0x41;
  refuses(flipped, 'TAR_HEADER');
  refuses(Buffer.concat([Buffer.alloc(512), tar]), 'TAR_HEADER');
  refuses([{ path: 'n'.repeat(256) }]);
  refuses([{ path: 'l', type: 'symlink', target: 't'.repeat(5000) }]);
  refuses([{ path: 'n', type: 'character-device', major: 5000, minor: 1 }], 'DEVICE_NUMBER');
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
    assert.throws(() => assert.ok(unpack(broken).entries === 0), Error);
  }
  assert.throws(() => unpack(tar, { limitBytes: 1000 }), { kind: 'invalid', code: 'LAYER_TOO_LARGE' });
});

test('sparse and unknown entries are refused by name', () => {
  const dir = join(temp, 'sparse');
  mkdirSync(dir);
  execFileSync('truncate', ['-s', '10M', join(dir, 'hole')]);
  for (const format of ['gnu', 'pax']) {
    const tar = execFileSync('tar', [`--format=${format}`, '--sparse', '-cf', '-', '.'], { cwd: dir });
    refuses(tar, 'TAR_SPARSE');
  }
  const volume = execFileSync('tar', ['--label=name', '-cf', '-', '.'], { cwd: dir, maxBuffer: 1 << 25 });
  refuses(volume, 'TAR_TYPE');
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
  for (let round = 0; round < 400; round++) {
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
  assert.ok(completed > 20, `${completed} archives were good enough to be unpacked`);
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
