/** The contract of storage drivers, kept by the driver btrfs on a file system of its own. */
import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { closeSync, existsSync, linkSync, lstatSync, mkdirSync, openSync, readdirSync, readFileSync } from 'node:fs';
import { rmSync, symlinkSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { btrfs } from '../../src/storage/drivers/btrfs/btrfs-driver.js';
import {
  beginLayer,
  makeContainer,
  makeTree,
  removeDirectories,
  sealLayer,
} from '../../src/storage/drivers/btrfs/tasks.js';
import type { DriverContext, StorageDriver } from '../../src/storage/drivers/driver.js';
import { storageDriver } from '../../src/storage/drivers/index.js';
import { isOpaque, makeOpaque, makeWhiteout } from '../../src/storage/layers/marks.js';
import { Layout } from '../../src/storage/layers/layout.js';
import { deleteSubvolume, fileSystemId, setReadOnly } from '../../src/sys/btrfs/subvolumes.js';
import type { WorkerPool } from '../../src/workers/pool.js';
import { isInMemoryOnly } from '../../src/sys/files/inode.js';
import { BtrfsDisk, noBtrfs } from '../support/btrfs-disk.js';
import { describeTree } from '../support/describe-tree.js';
import { testDriver } from '../support/driver-contract/contract.js';

const reason = noBtrfs();
if (reason !== false) test('storage driver btrfs', { skip: reason });
else {
  const disk = new BtrfsDisk();
  const directory = join(disk.path, 'stores');
  mkdirSync(directory);
  // A container is one snapshot here, whatever is below it, and each layer is a snapshot of the one below.
  testDriver(storageDriver('btrfs'), {
    directory,
    makeWritable: (path) => setReadOnly(path, false),
    sizes: { depth: 20 },
  });
  after(() => disk.remove());

  /** Returns a driver and the names of the tasks that it would have workers do. */
  async function withoutWorkers(): Promise<[StorageDriver, string[]]> {
    const ran: string[] = [];
    const workers = { run: async (name: string) => void ran.push(name) } as unknown as WorkerPool;
    const context = { layout: new Layout(disk.path), workers, storageOpts: [], owner: { uid: 0, gid: 0 } };
    return [await btrfs.open(context as unknown as DriverContext), ran];
  }

  test('what a layer has alone counts, and what is still in memory is not waited for when it is sealed', () => {
    const sizes = { large: 5 << 20, file: 3 << 20, some: 300_000, small: 6000, tiny: 10, none: 0 };
    const contents = Object.entries(sizes).map(([name, size]) => [name, randomBytes(size)] as const);
    const blocks = Object.values(sizes).reduce((sum, size) => sum + Math.ceil(size / 4096) * 4096, 0);
    // Links of another kind have their text among the metadata.
    const bytes = blocks + 4096;
    const layers = ['base', 'early', 'late'].map((name) => join(disk.path, 'counted', name));
    const [base = '', early = '', late = ''] = layers;
    for (const path of layers) mkdirSync(path, { recursive: true });
    const seal = (layer: string): void => {
      const difference = join(layer, 'diff');
      makeTree({ at: difference });
      for (const [name, content] of contents) writeFileSync(join(difference, name), content);
      linkSync(join(difference, 'file'), join(difference, 'same'));
      symlinkSync('file', join(difference, 'link'));
      if (layer !== late) execFileSync('sync', ['-f', difference]);
      const parent = layer === base ? undefined : join(base, 'tree');
      sealLayer({ difference, parent, tree: join(layer, 'tree') });
    };
    for (const layer of layers) seal(layer);
    const isUnwritten = (layer: string, name: string): boolean => {
      const fd = openSync(join(layer, 'tree', name), 'r');
      try {
        return isInMemoryOnly(fd);
      } finally {
        closeSync(fd);
      }
    };
    // Files that were written already are shared, and large ones are written for that.
    for (const name of ['file', 'some', 'small']) {
      assert.equal(isUnwritten(early, name), false, name);
      assert.equal(isUnwritten(late, name), true, name);
    }
    assert.equal(isUnwritten(late, 'large'), false);
    for (const layer of layers)
      for (const [name, content] of contents)
        assert.ok(readFileSync(join(layer, 'tree', name)).equals(content), `${layer} ${name}`);
    btrfs.counting?.prepare(disk.path);
    assert.deepEqual(
      layers.map((layer) => btrfs.counting?.own(layer)),
      [bytes, bytes, bytes],
    );
    removeDirectories({ paths: layers, names: ['tree', 'diff'] });
    rmSync(join(disk.path, 'counted'), { recursive: true });
  });

  test('a layer is the same whether its entries are moved to their places or copied there', () => {
    const at = (name: string): string => join(disk.path, 'placed', name);
    const [base, parent] = [at('base'), at('base/tree')];
    for (const name of ['base', 'moved', 'copied']) mkdirSync(at(name), { recursive: true });
    makeTree({ at: join(base, 'diff') });
    for (const path of ['kept/in', 'hidden/in', 'gone/in', 'same/in'])
      mkdirSync(join(base, 'diff', path), { recursive: true });
    for (const name of ['file', 'other']) writeFileSync(join(base, 'diff', name), 'old');
    symlinkSync('kept', join(base, 'diff/link'));
    sealLayer({ difference: join(base, 'diff'), parent: undefined, tree: parent });
    const content = randomBytes(10_000);
    const fill = (difference: string): void => {
      for (const path of ['hidden/new/deep', 'kept/new/deep', 'link/in', 'file/in', 'same'])
        mkdirSync(join(difference, path), { recursive: true, mode: 0o750 });
      for (const path of ['hidden', 'hidden/new', 'kept/new/deep']) makeOpaque(join(difference, path));
      for (const path of ['gone', 'hidden/in', 'kept/in', 'kept/new/deep/none']) makeWhiteout(join(difference, path));
      for (const path of ['other', 'same/new', 'link/in/new']) writeFileSync(join(difference, path), content);
      linkSync(join(difference, 'other'), join(difference, 'same/other'));
      for (const path of ['other', 'same/new', 'link/in/new', 'kept/new/deep', 'kept', 'same', ''])
        utimesSync(join(difference, path), 1000, 1000);
    };
    const moved = beginLayer({ parent, tree: at('moved/tree') });
    makeTree({ at: at('copied/diff') });
    for (const difference of [moved, at('copied/diff')]) fill(difference);
    sealLayer({ difference: moved, parent, tree: at('moved/tree') });
    sealLayer({ difference: at('copied/diff'), parent, tree: at('copied/tree') });
    assert.deepEqual(describeTree(at('moved/tree')), describeTree(at('copied/tree')));
    for (const path of ['', 'kept', 'same', 'kept/new/deep'])
      assert.equal(lstatSync(at(`moved/tree/${path}`)).mtimeMs, 1_000_000, path);
    assert.deepEqual(readdirSync(at('moved/tree/kept')), ['new']);
    for (const path of ['hidden', 'hidden/new', 'kept/new/deep'])
      assert.equal(isOpaque(at(`moved/tree/${path}`)), false);
    assert.deepEqual(readdirSync(at('moved')), ['tree']);
    btrfs.counting?.prepare(disk.path);
    assert.deepEqual(
      ['moved', 'copied'].map((name) => btrfs.counting?.own(at(name))),
      [36_864, 36_864],
    );
    removeDirectories({ paths: ['moved', 'copied', 'base', ''].map(at), names: ['tree', 'diff'] });
  });

  test('what all containers of an image need is written once, and no worker makes those after the second', async () => {
    const layer = join(disk.path, 'begun');
    const image = join(layer, 'tree');
    mkdirSync(join(layer, 'init/dev'), { recursive: true });
    makeTree({ at: image });
    writeFileSync(join(image, 'file'), 'whole');
    const make = (id: string, isAgain: boolean): string => {
      const [directory, differences] = [join(layer, id), [join(layer, 'init')]];
      mkdirSync(directory);
      makeContainer({ directory, image, differences, isAgain, sizeBytes: undefined, owner: { uid: 0, gid: 0 } });
      assert.deepEqual(readdirSync(directory), ['tree']);
      assert.deepEqual(readdirSync(join(directory, 'tree')).sort(), ['dev', 'file']);
      assert.equal(readFileSync(join(directory, 'tree/file'), 'utf8'), 'whole');
      writeFileSync(join(directory, 'tree/file'), 'changed');
      return join(directory, 'tree/dev');
    };
    const madeAt = (at: string): bigint => lstatSync(at, { bigint: true }).birthtimeNs;
    const first = make('first', false);
    assert.equal(existsSync(join(layer, 'start')), false);
    const [second, third] = [make('second', true), make('third', false)];
    assert.notEqual(madeAt(first), madeAt(second));
    assert.equal(madeAt(third), madeAt(second));
    // From then on no worker is needed.
    const [driver, ran] = await withoutWorkers();
    const create = async (id: string, options = {}): Promise<void> => {
      mkdirSync(join(layer, id));
      await driver.createWritable(join(layer, id), [join(layer, 'init'), image], options, id);
    };
    await Promise.all(['fifth', 'sixth'].map((id) => create(id)));
    await create('seventh');
    assert.deepEqual(ran, []);
    for (const id of ['fifth', 'sixth', 'seventh']) {
      assert.equal(madeAt(join(layer, id, 'tree/dev')), madeAt(second));
      assert.equal(readFileSync(join(layer, id, 'tree/file'), 'utf8'), 'whole');
      writeFileSync(join(layer, id, 'tree/file'), 'changed');
    }
    await create('sized', { size: '20m' });
    deleteSubvolume(image);
    await create('gone');
    assert.deepEqual(ran, ['btrfs-make-container', 'btrfs-make-container']);
    assert.throws(() => make('fourth', true), { code: 'LAYER_GONE' });
    const names = ['first', 'second', 'third', 'fourth', 'fifth', 'sixth', 'seventh', 'sized', 'gone', ''];
    const paths = names.map((id) => join(layer, id));
    removeDirectories({ paths, names: ['tree', 'start'] });
  });

  test('small containers are removed without a worker, and what they had is freed later', async (t) => {
    const [driver, ran] = await withoutWorkers();
    const make = (name: string): string => {
      mkdirSync(join(disk.path, name));
      makeTree({ at: join(disk.path, name, 'tree') });
      writeFileSync(join(disk.path, name, 'tree/file'), 'content');
      return join(disk.path, name);
    };
    const [one, two, nests] = [make('one'), make('two'), make('nests')];
    makeTree({ at: join(nests, 'tree/nested') });
    t.mock.timers.enable({ apis: ['setTimeout'] });
    await driver.remove([one, two]);
    assert.deepEqual([ran, existsSync(one), existsSync(two)], [[], false, false]);
    await driver.remove([nests]);
    assert.deepEqual([ran, existsSync(join(nests, 'tree/nested'))], [['btrfs-remove'], true]);
    execFileSync('btrfs', ['filesystem', 'sync', disk.path]);
    const generation = (): string => readFileSync(`/sys/fs/btrfs/${fileSystemId(disk.path)}/generation`, 'utf8');
    const before = generation();
    writeFileSync(join(disk.path, 'change'), '');
    t.mock.timers.tick(2_000);
    // The call has the kernel write down what has changed.
    while (generation() === before) await turn();
    removeDirectories({ paths: [nests], names: ['tree'] });
  });
}
