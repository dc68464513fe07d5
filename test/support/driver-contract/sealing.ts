/** Tests of drivers: a writable layer that nobody uses any more becomes what a commit would make of it. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  chmodSync,
  chownSync,
  ftruncateSync,
  linkSync,
  lstatSync,
  lutimesSync,
  mkdirSync,
  openSync,
  closeSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import type { Digest } from '../../../src/ports/storage.js';
import type { DriverLayerStore } from '../../../src/storage/layers/layer-store.js';
import { makeDevice, makeFifo, makeSocket } from '../../../src/sys/files/inode.js';
import { getXattr, setXattr } from '../../../src/sys/files/xattr.js';
import { describeTree, withoutInit } from '../describe-tree.js';
import { sha256 } from '../image-builder.js';
import type { DriverHarness, DriverTests } from './harness.js';

/** A layer keeps whole seconds when its tar was unpacked, and may keep more when it was not. */
const SECOND = 1_600_000_000;
const SPARSE_BYTES = 8 << 20;

const BELOW = [
  { path: './', type: 'directory', mode: 0o711, uid: 7, gid: 8, mtime: 1_000_000 },
  { path: 'etc/', type: 'directory' },
  { path: 'etc/passwd', content: 'root' },
  { path: 'etc/group', content: 'root' },
  { path: 'again/', type: 'directory' },
  { path: 'again/old', content: 'old' },
  { path: 'gone/', type: 'directory' },
  { path: 'gone/file', content: 'x' },
] as const;

/** Everything that a layer can hold, and what none can. */
function fill(root: string): void {
  const at = (name: string): string => join(root, name);
  const dated = (name: string): void => lutimesSync(at(name), SECOND, SECOND);
  writeFileSync(at('etc/passwd'), 'changed');
  rmSync(at('etc/group'));
  rmSync(at('gone'), { recursive: true });
  rmSync(at('again'), { recursive: true });
  mkdirSync(at('again'));
  writeFileSync(at('again/new'), 'new');
  mkdirSync(at('new/deep'), { recursive: true });
  writeFileSync(at('new/deep/program'), 'program');
  chownSync(at('new/deep/program'), 3, 4);
  chmodSync(at('new/deep/program'), 0o6751);
  setXattr(
    at('new/deep/program'),
    'security.capability',
    Buffer.from('0100000200040000000000000000000000000000', 'hex'),
  );
  setXattr(at('new/deep/program'), 'user.note', Buffer.from('of a file'));
  setXattr(at('new/deep'), 'user.note', Buffer.from('of a directory'));
  linkSync(at('new/deep/program'), at('new/twin'));
  symlinkSync('../etc/passwd', at('new/link'));
  writeFileSync(Buffer.from(`${root}/new/\xff\xfe`, 'latin1'), 'no text');
  writeFileSync(at(`new/${'long'.repeat(60)}`), 'long');
  writeFileSync(at('new/empty'), '');
  makeFifo(at('new/fifo'));
  makeDevice(at('new/device'), 'char', 1, 3);
  makeSocket(at('new/socket'));
  const sparse = openSync(at('new/sparse'), 'w');
  ftruncateSync(sparse, SPARSE_BYTES);
  writeSync(sparse, 'end', SPARSE_BYTES - 3);
  closeSync(sparse);
  chmodSync(root, 0o700);
  const names = execFileSync('find', [root, '-xdev', '-newermt', '@1600000001', '-print0'], { encoding: 'latin1' });
  for (const name of names.split('\0').filter((found) => found !== ''))
    lutimesSync(Buffer.from(name, 'latin1'), SECOND, SECOND);
  dated('new/deep');
  utimesSync(root, SECOND, SECOND);
}

interface Outcome {
  readonly diffId: Digest;
  readonly sizeBytes: number;
  readonly tar: Buffer;
  readonly tree: readonly string[];
}

/** Looks at a layer, which goes then. */
async function take(h: DriverHarness, store: DriverLayerStore, chainId: Digest, id: string): Promise<Outcome> {
  store.retain(chainId);
  const { diffId = sha256(Buffer.alloc(0)), sizeBytes = -1 } = store.find(chainId) ?? {};
  const tar = await buffer(store.tarStream(chainId));
  assert.equal(sha256(tar), diffId);
  const tree = await h.mounted(store, id, chainId, (root) =>
    withoutInit(describeTree(root, { directoryTimes: true })).filter((line) => !line.startsWith(' |')),
  );
  const root = await h.mounted(store, id, chainId, (at) => lstatSync(at));
  await store.removeWritable(id);
  assert.deepEqual(await store.release(chainId), [chainId]);
  return { diffId, sizeBytes, tar, tree: [`${root.mode.toString(8)} ${root.uid} ${root.gid}`, ...tree] };
}

/** Commits a container and then seals it. Both must give the same layer. */
async function compare(
  h: DriverHarness,
  store: DriverLayerStore,
  below: Digest | undefined,
  write: (root: string) => void,
): Promise<readonly string[]> {
  await h.mounted(store, 'c', below, write);
  const committed = await take(h, store, (await store.commitWritable('c')).chainId, 'of-commit');
  const sealed = await take(h, store, (await store.sealWritable('c')).chainId, 'of-seal');
  assert.equal(sealed.diffId, committed.diffId);
  assert.equal(sealed.sizeBytes, committed.sizeBytes);
  assert.ok(sealed.tar.equals(committed.tar));
  assert.deepEqual(sealed.tree, committed.tree);
  assert.deepEqual(store.writableIds(), []);
  assert.deepEqual(store.directories().staging, []);
  return sealed.tree;
}

export const SEALING_TESTS: DriverTests = {
  async 'a sealed layer has the tar and the files of a commit'(h) {
    const store = await h.newStore('sealed');
    const below = await h.addLayers(store, [BELOW]);
    const tree = await compare(h, store, below, fill);
    assert.equal(tree[0], '40711 7 8', 'the root is that of the layers below');
    const paths = tree.map((line) => line.split(' | ', 1)[0] ?? '');
    for (const path of ['new/twin', 'new/fifo', 'new/device', 'again/new']) assert.ok(paths.includes(path), path);
    for (const path of ['new/socket', 'gone', 'again/old']) assert.ok(!paths.includes(path), path);
  },

  async 'a sealed layer without layers below it has a root of its own'(h) {
    const store = await h.newStore('sealed-lowest');
    const tree = await compare(h, store, undefined, (root) => {
      writeFileSync(join(root, 'a'), 'abc');
      utimesSync(join(root, 'a'), SECOND, SECOND);
      setXattr(root, 'user.note', Buffer.from('of the root'));
      chmodSync(root, 0o700);
    });
    assert.equal(tree[0], '40755 0 0');
    assert.equal(tree.length, 2);
  },

  async 'files and attributes that no tar has are in no sealed layer either'(h) {
    const store = await h.newStore('sealed-odd');
    const below = await h.addLayers(store, [BELOW]);
    for (const make of [
      ...(h.can('make names of whiteouts') ? [(root: string) => writeFileSync(join(root, '.wh.name'), 'x')] : []),
      (root: string) => {
        writeFileSync(join(root, 'file'), 'x');
        setXattr(join(root, 'file'), 'trusted.note', Buffer.from('x'));
      },
    ]) {
      await compare(h, store, below, (root) => {
        make(root);
        writeFileSync(join(root, 'kept'), 'kept');
        for (const name of readdirSync(root)) lutimesSync(join(root, name), SECOND, SECOND);
      });
    }
    await h.mounted(store, 'c', below, (root) => {
      writeFileSync(join(root, 'file'), 'x');
      setXattr(join(root, 'file'), 'trusted.note', Buffer.from('x'));
    });
    const { chainId } = await store.sealWritable('c');
    const { diffDir, close } = store.openTar(chainId);
    assert.equal(getXattr(join(diffDir, 'file'), 'trusted.note'), undefined);
    close();
  },

  async 'containers stand on a sealed layer, and equal ones are one layer'(h) {
    const store = await h.newStore('sealed-twice');
    const below = await h.addLayers(store, [BELOW]);
    const made: Digest[] = [];
    for (const id of ['one', 'two']) {
      await h.mounted(store, id, below, (root) => {
        writeFileSync(join(root, 'file'), 'same');
        utimesSync(join(root, 'file'), SECOND, SECOND);
      });
      const layer = await store.sealWritable(id);
      if (id === 'one') store.retain(layer.chainId);
      made.push(layer.chainId);
    }
    const [first] = made;
    assert.ok(first);
    assert.equal(made[1], first);
    await h.mounted(store, 'above', first, (root) => {
      assert.equal(readFileSync(join(root, 'file'), 'utf8'), 'same');
      writeFileSync(join(root, 'file'), 'other');
    });
    assert.equal((await buffer(store.tarStream(first))).includes('other'), false);
    await store.removeWritable('above');
  },
};
