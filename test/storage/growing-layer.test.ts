/** The tar of a layer that grows with its files is the one that a walk through the complete files gives. Needs root. */
import assert from 'node:assert/strict';
import {
  chmodSync,
  chownSync,
  linkSync,
  lutimesSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { after, test } from 'node:test';
import { copyFiles, type CopyFilesInput } from '../../src/build/files/copy-files.js';
import { storageDriver } from '../../src/storage/drivers/index.js';
import type { DriverLayerStore } from '../../src/storage/layers/layer-store.js';
import { sealDiff } from '../../src/storage/tasks/seal-diff.js';
import { makeFifo, makeSocket } from '../../src/sys/files/inode.js';
import { setXattr } from '../../src/sys/files/xattr.js';
import { describeTree } from '../support/describe-tree.js';
import { DriverHarness } from '../support/driver-contract/harness.js';
import { sha256 } from '../support/image-builder.js';

const harness = new DriverHarness(storageDriver('overlay2'));
after(() => harness.close());

const BELOW = [
  { path: 'etc/', type: 'directory', mode: 0o711, uid: 7, gid: 8, mtime: 1_000_000 },
  { path: 'etc/passwd', content: 'root' },
  { path: 'etc/kept', content: 'kept' },
  { path: 'link', type: 'symlink', target: 'etc' },
] as const;
const CAPABILITY = Buffer.from('0100000200040000000000000000000000000000', 'hex');
/** All for the user, read and search for others, as in linux/posix_acl_xattr.h. */
const ACL = Buffer.from('0200000001000700ffffffff04000500ffffffff20000500ffffffff', 'hex');
const MAPPED = [{ containerId: 0, hostId: 100_000, count: 65_536 }];

const store = await harness.newStore('growing');
const below = await harness.addLayers(store, [BELOW]);

interface Case {
  readonly fill: (at: (name: string) => string) => void;
  readonly input?: Partial<CopyFilesInput> & { readonly ignore?: readonly string[]; readonly sources?: string[] };
  readonly grows: boolean;
}

function some(at: (name: string) => string): void {
  mkdirSync(at('d/deep'), { recursive: true });
  for (const name of ['d/b', 'd/deep/x', 'd-a', 'd.a', 'ümläut', 'long'.repeat(50)])
    writeFileSync(at(name), name.repeat(200));
  writeFileSync(at('d/empty'), '');
  writeFileSync(at('d/large'), Buffer.alloc(300 * 1024, 'large'));
  writeFileSync(at('d/block'), Buffer.alloc(1024, 'b'));
  symlinkSync('../link', at('d/soft'));
  makeFifo(at('d/fifo'));
  makeSocket(at('d/socket'));
  chownSync(at('d/b'), 3, 4);
  chmodSync(at('d/b'), 0o6755);
  chownSync(at('d/deep'), 5, 6);
  chmodSync(at('d/deep'), 0o1777);
  lutimesSync(at('d/soft'), 1_500_000_000, 1_500_000_000);
  utimesSync(at('d/b'), 1_400_000_000.7, 1_400_000_000.7);
  utimesSync(at('d/deep'), 1_300_000_000, 1_300_000_000);
  utimesSync(at('d'), -1000.5, -1000.5);
}

/** Enough for a second thread, and more than are in memory at once. */
function many(at: (name: string) => string): void {
  for (let count = 0; count < 300; count++) {
    const directory = at(`${count % 2 === 0 ? 'even' : 'odd'}/d${Math.floor(count / 50)}`);
    mkdirSync(directory, { recursive: true });
    const path = join(directory, `${count}`);
    writeFileSync(path, Buffer.alloc((count * 7919) % 90_000, `content of ${count}`));
    if (count % 9 === 0) chownSync(path, count, 1);
    if (count % 5 === 0) chmodSync(path, 0o2700 + (count % 8));
    if (count % 31 === 0) setXattr(path, 'user.note', Buffer.from('x'));
    utimesSync(path, 1_600_000_000 + count / 7, 1_600_000_000 + count / 7);
  }
}

const CASES: Readonly<Record<string, Case>> = {
  'a tree into the root': { fill: some, grows: true },
  'a tree into a new directory of one that is there': {
    fill: some,
    input: { destination: '/etc/new/er', isIntoDirectory: true },
    grows: true,
  },
  'a tree through a link into a directory that is there': {
    fill: some,
    input: { destination: '/link', isIntoDirectory: true },
    grows: true,
  },
  'a tree that gets an owner and modes': {
    fill: some,
    input: { owner: { uid: 1000, gid: 2000 }, chmod: 'u=rwX,go=rX', destination: '/home' },
    grows: true,
  },
  'a tree of which much is left out': {
    fill: some,
    input: { ignore: ['d', '!d/deep/x', '*.a'] },
    grows: true,
  },
  'directories that are kept': { fill: some, input: { parents: true, sources: ['/d/deep'] }, grows: true },
  'files and directories in the place of others': {
    fill: (at) => {
      mkdirSync(at('etc'));
      for (const name of ['etc/passwd', 'etc/new']) writeFileSync(at(name), name);
    },
    grows: true,
  },
  'a file in a directory that is there': {
    fill: (at) => writeFileSync(at('file'), 'content'),
    input: { sources: ['/file'], destination: '/etc', isIntoDirectory: true },
    grows: true,
  },
  'a large file in the place of one': {
    fill: (at) => writeFileSync(at('file'), Buffer.alloc(1_000_000, 'x')),
    input: { sources: ['/file'], destination: '/etc/passwd' },
    grows: true,
  },
  'files and directories with attributes': {
    fill: (at) => {
      mkdirSync(at('d'));
      for (const name of ['d/program', 'note']) writeFileSync(at(name), name);
      setXattr(at('d/program'), 'security.capability', CAPABILITY);
      for (const name of ['d', 'note']) setXattr(at(name), 'user.note', Buffer.from(name));
    },
    grows: true,
  },
  'owners of containers that are others here': {
    fill: some,
    input: { idMaps: { uids: MAPPED, gids: MAPPED } },
    grows: true,
  },
  'many files that another thread writes': { fill: many, grows: true },
  'many files that get an owner and modes': {
    fill: many,
    input: { owner: { uid: 1000, gid: 2000 }, chmod: '4711', destination: '/home' },
    grows: true,
  },
  'many files in a directory that is there': { fill: many, input: { destination: '/etc' }, grows: true },
  'an empty directory': { fill: () => undefined, input: { destination: '/etc/new' }, grows: false },
  'names of one file': {
    fill: (at) => {
      writeFileSync(at('a'), 'shared');
      linkSync(at('a'), at('b'));
    },
    grows: false,
  },
  'a name that reads as a whiteout': { fill: (at) => writeFileSync(at('.wh.etc'), ''), grows: false },
  'a directory whose files inherit attributes': {
    fill: (at) => {
      mkdirSync(at('d'));
      setXattr(at('d'), 'system.posix_acl_default', ACL);
      writeFileSync(at('d/file'), 'inherits');
    },
    grows: false,
  },
  'a file of several sources': {
    fill: some,
    input: { sources: ['/d-a', '/d'], destination: '/both', isIntoDirectory: true },
    grows: false,
  },
};

const pause = new Int32Array(new SharedArrayBuffer(4));
const isManned = (memory: SharedArrayBuffer): boolean => Atomics.load(new Int32Array(memory), 2) === 1;

async function copied(
  into: DriverLayerStore,
  id: string,
  root: string,
  { fill, input = {} }: Case,
): Promise<CopyResult> {
  await into.createBrief(id, below, { isBare: false });
  const growing = into.growing(id);
  assert.ok(growing);
  const { ignore = [], sources = ['/'], ...rest } = input;
  const layer = { ...growing, idMaps: rest.idMaps };
  // A thread that is there already takes the task without this one.
  await harness.workers.run('tree-size', { path: root });
  let writing: Promise<void> | undefined;
  const postMessage = (memory: SharedArrayBuffer): void => {
    writing = harness.workers.run('build-write-line', { memory });
    for (let looks = 0; looks < 1000 && !isManned(memory); looks++) Atomics.wait(pause, 0, 0, 10);
    assert.ok(isManned(memory));
  };
  const content = await copyFiles({
    trees: [{ root, sources, ignore, exclude: [] }],
    rootfs: await into.mount(id),
    destination: '/',
    isIntoDirectory: false,
    owner: undefined,
    isMapped: false,
    chmod: '',
    unpacks: false,
    parents: false,
    idMaps: undefined,
    layer,
    port: { postMessage },
    ...rest,
  });
  assert.equal(writing !== undefined, fill === many);
  await writing;
  await into.unmount(id);
  return { content, layer };
}

interface CopyResult {
  readonly content: Awaited<ReturnType<typeof copyFiles>>;
  readonly layer: NonNullable<CopyFilesInput['layer']>;
}

let count = 0;
for (const [name, one] of Object.entries(CASES)) {
  test(`${name}: ${one.grows ? 'the tar has grown' : 'the files are walked through'}`, async () => {
    const root = mkdtempSync(join(harness.temp, 'context-'));
    one.fill((path) => join(root, path));
    const id = `copy${count++}`;
    const { content, layer } = await copied(store, id, root, one);
    assert.equal(content !== undefined, one.grows);
    if (one.fill === many && one.input === undefined)
      assert.deepEqual(describeTree(layer.upperDir).slice(1), describeTree(root).slice(1));
    const walkedSplit = join(harness.temp, `split-${id}`);
    const walked = sealDiff({ upperDir: layer.upperDir, tarSplitPath: walkedSplit, idMaps: layer.idMaps });
    if (content !== undefined) {
      assert.deepEqual(content, walked);
      assert.ok(readFileSync(layer.tarSplitPath).equals(readFileSync(walkedSplit)));
    }
    const { chainId, diffId } = await store.sealWritable(id, content);
    store.retain(chainId);
    // The store has no maps of owners, so it would make another tar.
    if (layer.idMaps === undefined) assert.equal(sha256(await buffer(store.tarStream(chainId))), diffId);
    await store.release(chainId);
  });
}
