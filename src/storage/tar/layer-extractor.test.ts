import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { lstatSync, mkdirSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { describeTree } from '../../../test/support/describe-tree.js';
import { type LayerEntry, tarOf } from '../../../test/support/image-builder.js';
import { assertComesBack, contentOf, LayerUnpacking, makeOddTree } from '../../../test/support/layer-unpacking.js';
import { getXattr, setXattr } from '../../sys/files/xattr.js';

const unpacking = new LayerUnpacking();
const { temp } = unpacking;
const source = makeOddTree(join(temp, 'source'));

for (const format of ['gnu', 'oldgnu', 'pax', 'v7', 'ustar']) {
  test(`a ${format} archive unpacks as GNU tar unpacks it, in whatever portions it comes`, () => {
    // Names and links that the old formats cannot hold are left out of them.
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
      const layer = unpacking.unpack(tar, { chunkBytes });
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

test('a large file has its bytes, whatever portions they come in, and takes no more room', () => {
  const large = Buffer.alloc(5 * 1024 * 1024, 'content of a large file ');
  const tar = tarOf([
    { path: 'large', content: large },
    { path: 'larger', content: Buffer.concat([large, large, Buffer.from('end')]) },
    { path: 'small', content: 'abc' },
  ]);
  for (const chunkBytes of [64 * 1024, 1 << 20, 1 << 26]) {
    const layer = unpacking.unpack(tar, { chunkBytes });
    for (const [name, copies, end] of [
      ['large', 1, ''],
      ['larger', 2, 'end'],
    ] as const) {
      const path = join(layer.diffDir, name);
      const expected = Buffer.concat([...Array.from({ length: copies }, () => large), Buffer.from(end)]);
      assert.ok(readFileSync(path).equals(expected));
      const { blocks } = lstatSync(path);
      assert.ok(blocks * 512 <= expected.length + 64 * 1024, `${blocks} blocks`);
    }
    assertComesBack(layer, tar);
  }
});

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
    const layer = unpacking.unpack(odd);
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
  const layer = unpacking.unpack(tar);
  assert.equal(contentOf(layer, 'x/in'), 'inside again');
  assert.equal(lstatSync(join(layer.diffDir, 'x')).mode & 0o7777, 0o711);
  assert.equal(contentOf(layer, 'y'), 'why');
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
  const layer = unpacking.unpack(tar);
  assert.deepEqual([contentOf(layer, 'a'), contentOf(layer, 'b')], ['three', 'three']);
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
  const layer = unpacking.unpack(tar);
  const opaque = (path: string): string | undefined =>
    getXattr(join(layer.diffDir, path), 'trusted.overlay.opaque')?.toString();
  assert.deepEqual(readdirSync(layer.diffDir).sort(), ['dir', 'file', 'kept', 'late', 'made', 'parent']);
  const gone = lstatSync(join(layer.diffDir, 'dir/gone'));
  assert.equal(gone.isCharacterDevice() && gone.rdev === 0, true);
  assert.deepEqual([opaque('dir'), opaque('made'), opaque('late'), opaque('parent')], ['y', 'y', 'y', 'y']);
  assert.equal(contentOf(layer, 'file'), 'here again');
  assert.deepEqual(layer.whiteouts, ['dir/gone']);
  assert.deepEqual(layer.implicitDirs, ['', 'dir']);
  assert.equal(layer.sizeBytes, 14);
  assertComesBack(layer, tar);
});

test('files have their modes whatever the umask is, and whatever file had the same mode before', (t) => {
  const umask = process.umask(0o027);
  t.after(() => process.umask(umask));
  const modes = [0o666, 0o640, 0o4755, 0o666, 0o640, 0o4755, 0o2711, 0];
  const files = modes.flatMap((mode, at): LayerEntry[] => [
    { path: `root-${at}`, content: 'x', mode },
    { path: `other-${at}`, content: 'x', mode, uid: 1, gid: 2 },
  ]);
  const { diffDir } = unpacking.unpack(tarOf(files));
  const found = files.map(({ path }) => lstatSync(join(diffDir, path)).mode & 0o7777);
  assert.deepEqual(
    found,
    files.map(({ mode }) => mode),
  );
});
