import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { afterEach, beforeEach, describe, test } from 'node:test';
import { DirectoryLayerStore } from '../../../test/support/directory-layer-store.js';
import { inlinePool } from '../../../test/support/inline-pool.js';
import { silentLog } from '../../../test/support/silent-log.js';
import type { CachePrune } from '../../ports/build.js';
import type { CacheMount, CacheMountOrder, CacheMounts, NewCacheRecord } from '../../ports/build-cache.js';
import type { Digest } from '../../ports/storage.js';
import { FileBuildCache } from './build-cache.js';

let dir: string;
let layers: DirectoryLayerStore;
let cache: FileBuildCache;
let imageLayers: Set<Digest>;

const EVERYTHING: CachePrune = {
  all: true,
  keepDurationMs: 0,
  reservedSpace: 0,
  maxUsedSpace: 0,
  minFreeSpace: 0,
  selects: () => true,
};

function open(): FileBuildCache {
  return new FileBuildCache({
    root: join(dir, 'builder/cache'),
    layers,
    pool: inlinePool,
    owner: { uid: 0, gid: 0 },
    imageLayers: () => imageLayers,
    log: silentLog,
  });
}

/** Does what the next start of a killed daemon does: nothing was closed, and the references are taken anew. */
async function restart(): Promise<readonly string[]> {
  const before = await storedRecords();
  cache = open();
  const { removed } = await cache.load();
  for (const { layer } of before) if (layer !== undefined) await layers.release(layer);
  return removed;
}

async function storedRecords(): Promise<{ readonly layer?: Digest }[]> {
  const root = join(dir, 'builder/cache/records');
  const names = (await readdir(root)).filter((name) => /^[0-9a-z]{25}\.json$/.test(name));
  const texts = await Promise.all(names.map((name) => readFile(join(root, name), 'utf8')));
  return texts.flatMap((text) => {
    try {
      return (JSON.parse(text) as { value: { layer?: Digest } }).value;
    } catch {
      return [];
    }
  });
}

let layersMade = 0;

/** Commits a layer of ten bytes. It has a reference, as in a build. */
async function layer(parent?: Digest): Promise<Digest> {
  const staged = await layers.stage();
  const diffId: Digest = `sha256:${(++layersMade).toString(16).padStart(64, '0')}`;
  const parts = { diffId, parent, sizeBytes: 10, implicitDirs: [], danglingLinks: [], whiteouts: [] };
  const { chainId } = await staged.commit(parts);
  layers.retain(chainId);
  return chainId;
}

/** Adds a record as a build does that ends at once. */
async function add(key: string, options: Partial<NewCacheRecord> = {}): Promise<string> {
  const own = options.layer ?? (await layer());
  const held = await cache.add({
    key,
    parents: [],
    type: 'regular',
    description: key,
    layer: own,
    isEmpty: false,
    sizeBytes: 10,
    ...options,
  });
  await held.release();
  if (options.layer === undefined) await layers.release(own);
  return held.id;
}

async function keys(): Promise<string[]> {
  return (await cache.usage()).map(({ description }) => description).sort();
}

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'engined-cache-'));
  imageLayers = new Set();
  layers = new DirectoryLayerStore(join(dir, 'layers'));
  await layers.load();
  cache = open();
  await cache.load();
});
afterEach(async () => {
  await cache.close();
  await rm(dir, { recursive: true, force: true });
});

describe('records', () => {
  test('are found after a restart with their layers, uses and parents', async () => {
    const parent = await add('base');
    await add('child', { parents: [parent] });
    const found = await cache.find('child');
    assert.ok(found);
    assert.equal(await cache.find('unknown'), undefined);
    await cache.close();
    assert.deepEqual(await restart(), []);
    const again = await cache.find('child');
    assert.deepEqual(again && { ...again, release: undefined }, { ...found, release: undefined });
    const usage = new Map((await cache.usage()).map((each) => [each.description, each]));
    assert.deepEqual(usage.get('child')?.parents, [parent]);
    assert.equal(usage.get('child')?.usageCount, 3);
    assert.equal(usage.get('child')?.inUse, true);
    // Its parent is in use as long as it is.
    assert.equal(usage.get('base')?.inUse, true);
    await again?.release();
    assert.deepEqual(
      (await cache.usage()).map(({ inUse }) => inUse),
      [false, false],
    );
  });

  test('of the same step are one, and a new result takes the place of the old one', async () => {
    const same = await layer();
    assert.equal(await add('step', { layer: same }), await add('step', { layer: same }));
    const newer = await add('step');
    assert.equal((await cache.find('step'))?.id, newer);
    assert.equal((await cache.usage()).length, 2);
  });

  test('that a crash has damaged, or whose layers are gone, are removed and reported', async () => {
    const root = join(dir, 'builder/cache/records');
    const whole = await add('whole');
    const damaged = await add('damaged');
    await writeFile(join(root, `${damaged}.json`), '{"version":1,"value":{"id":');
    await writeFile(join(root, `${whole}.json.tmp-0123456789ab`), '{');
    const lost = await layer();
    const orphan = await add('orphan', { layer: lost });
    await layers.release(lost);
    await layers.release(lost);
    cache = open();
    const { removed } = await cache.load();
    assert.deepEqual(
      new Set(removed.map((text) => text.split(':')[0])),
      new Set([`record ${damaged}.json`, `record ${orphan}`, `record ${whole}.json.tmp-0123456789ab`]),
    );
    assert.deepEqual(await readdir(root), [`${whole}.json`]);
    assert.deepEqual(await keys(), ['whole']);
  });
});

describe('prune', () => {
  test('leaves what is in use with all below it, and frees what nobody else has', async () => {
    const base = await add('base');
    const held = await cache.add({
      key: 'held',
      parents: [base],
      type: 'regular',
      description: 'held',
      layer: undefined,
      isEmpty: true,
      sizeBytes: 0,
    });
    await add('free');
    const first = await cache.prune(EVERYTHING);
    assert.deepEqual([first.removed.map(({ description }) => description), first.reclaimed], [['free'], 10]);
    await held.release();
    const second = await cache.prune(EVERYTHING);
    assert.deepEqual(
      second.removed.map(({ description }) => description),
      ['held', 'base'],
    );
    assert.equal(second.reclaimed, 10);
    assert.deepEqual(layers.chainIds, []);
    assert.equal(await cache.find('base'), undefined);
    await restart();
    assert.deepEqual(await keys(), []);
  });

  test('frees nothing of images, which it leaves without `all`, as it does with internal records', async () => {
    const shared = await layer();
    imageLayers.add(shared);
    await add('shared', { layer: shared });
    await add('internal', { type: 'internal' });
    await add('plain');
    const some = await cache.prune({ ...EVERYTHING, all: false });
    assert.deepEqual([some.removed.map(({ description }) => description), some.reclaimed], [['plain'], 10]);
    const all = await cache.prune(EVERYTHING);
    assert.deepEqual([all.removed.length, all.reclaimed], [2, 10]);
    assert.deepEqual(layers.chainIds, [shared]);
  });

  test('keeps young records, and those that the client did not choose', async () => {
    await add('a');
    await add('b');
    assert.deepEqual((await cache.prune({ ...EVERYTHING, keepDurationMs: 60_000 })).removed, []);
    await cache.prune({ ...EVERYTHING, selects: ({ description }) => description === 'a' });
    assert.deepEqual(await keys(), ['b']);
  });

  test('stops at its limits, and removes first what is used least', async () => {
    const chain = [await add('1')];
    for (const name of ['2', '3']) chain.push(await add(name, { parents: chain.slice(-1) }));
    await add('loved');
    for (let use = 0; use < 5; use++) await (await cache.find('loved'))?.release();
    await cache.prune({ ...EVERYTHING, maxUsedSpace: 25 });
    assert.deepEqual(await keys(), ['1', 'loved']);
    await cache.prune({ ...EVERYTHING, maxUsedSpace: 1, reservedSpace: 100 });
    assert.deepEqual(await keys(), ['1', 'loved']);
  });
});

describe('directories', () => {
  const never = new AbortController().signal;
  const order = (sharing: CacheMountOrder['sharing'], more: Partial<CacheMountOrder> = {}): CacheMountOrder => ({
    id: 'go',
    sharing,
    description: 'cached mount',
    ...more,
  });
  const mount = (sharing: CacheMountOrder['sharing'], more?: Partial<CacheMountOrder>): Promise<CacheMount> =>
    cache.openMount(order(sharing, more), never);

  test('keep their files, are measured and pruned, but not while they are used', async () => {
    const first = await mount('shared', { seed: (to) => writeFile(join(to, 'seed'), 'seed') });
    await writeFile(join(first.directory, 'file'), '12345');
    assert.deepEqual((await cache.prune(EVERYTHING)).removed, []);
    await first.release();
    const seedAgain = (): Promise<void> => Promise.reject(new Error('it is not new'));
    const second = await mount('shared', { seed: seedAgain });
    assert.equal(await readFile(join(second.directory, 'file'), 'utf8'), '12345');
    await second.release();
    await cache.close();
    await restart();
    const [usage] = await cache.usage();
    assert.deepEqual([usage?.type, usage?.size, usage?.usageCount], ['exec.cachemount', 9, 2]);
    const { reclaimed } = await cache.prune(EVERYTHING);
    assert.equal(reclaimed, 9);
    assert.deepEqual(await readdir(join(dir, 'builder/cache/directories')), []);
  });

  test('that are locked are never waited for in a circle', async () => {
    const both = (...ids: string[]): Promise<CacheMounts> =>
      cache.openMounts(
        ids.map((id) => order('locked', { id })),
        never,
      );
    const holder = await mount('locked', { id: 'a' });
    // The first waits for a; the second would have b then, and wait for a, too.
    const [first, second] = [both('a', 'b'), both('b', 'a')];
    await holder.release();
    const opened = await first;
    assert.equal(new Set(opened.directories).size, 2);
    await opened.release();
    const other = await second;
    assert.deepEqual(other.directories, opened.directories.toReversed());
    await other.release();
    // A step that names one twice has it twice.
    const twice = await both('a', 'a');
    assert.equal(twice.directories[0], twice.directories[1]);
    await twice.release();
  });

  test('are all given back, also when one of them fails', async () => {
    const broken = ['a', 'b'];
    const open = cache.openMount.bind(cache);
    cache.openMount = async (wanted, signal) => {
      const one = await open(wanted, signal);
      const fail = (): Promise<void> => Promise.reject(new Error(`${wanted.id} is broken`));
      const release = (): Promise<void> => (broken.includes(wanted.id) ? fail() : one.release());
      return { directory: one.directory, release };
    };
    const mounts = await cache.openMounts(
      ['a', 'b', 'c'].map((id) => order('locked', { id })),
      never,
    );
    await assert.rejects(mounts.release(), /^Error: a is broken$/);
    // A locked directory that somebody still had would never come.
    await (await open(order('locked', { id: 'c' }), never)).release();
  });

  test('are shared, or one of their own for each user', async () => {
    const [a, b] = await Promise.all([mount('shared'), mount('shared')]);
    assert.equal(a.directory, b.directory);
    const alone = await mount('private');
    assert.notEqual(alone.directory, a.directory);
    await alone.release();
    const again = await mount('private');
    assert.equal(again.directory, alone.directory);
    for (const each of [a, b, again]) await each.release();
  });

  test('that are locked come in the order of the asking, and an abort ends the waiting', async () => {
    const holder = await mount('locked');
    const log: string[] = [];
    const turn = (name: string): Promise<void> =>
      mount('locked').then(async (mine) => {
        assert.equal(mine.directory, holder.directory);
        log.push(name);
        await mine.release();
      });
    const abort = new AbortController();
    const first = turn('first');
    const given = cache.openMount(order('locked'), abort.signal);
    const second = turn('second');
    abort.abort(new Error('gone'));
    await assert.rejects(given, /gone/);
    assert.deepEqual(log, []);
    await holder.release();
    await Promise.all([first, second]);
    assert.deepEqual(log, ['first', 'second']);
  });

  test('whose seed fails, or that a crash left, are not there', async () => {
    const failing = mount('shared', { seed: () => Promise.reject(new Error('no seed')) });
    await assert.rejects(failing, /no seed/);
    const root = join(dir, 'builder/cache/directories');
    assert.deepEqual(await readdir(root), []);
    const left = '.new-0123456789abcdefghijklmno';
    await mkdir(join(root, left, 'deep'), { recursive: true });
    await mkdir(join(root, '0123456789abcdefghijklmnx'));
    await cache.close();
    assert.equal((await restart()).length, 2);
    await cache.usage();
    while (existsSync(join(root, left))) await new Promise(setImmediate);
    const fresh = await mount('shared');
    assert.deepEqual(await readdir(fresh.directory), []);
    await fresh.release();
  });

  test('of clients belong to one build at a time', async () => {
    const source = { id: 'context', description: 'local source for context' };
    const [one, two] = await Promise.all([cache.openSource(source), cache.openSource(source)]);
    assert.notEqual(one.directory, two.directory);
    assert.notEqual(one.digests, two.digests);
    await one.release();
    await two.release();
    assert.deepEqual(
      (await cache.usage()).map(({ type }) => type),
      ['source.local', 'source.local'],
    );
  });

  test('of clients have the size that is told, or are counted', async () => {
    const source = { id: 'context', description: 'local source for context' };
    const sizes = async (): Promise<number[]> => (await cache.usage()).map(({ size }) => size);
    const told = await cache.openSource(source);
    await writeFile(join(told.directory, 'file'), 'counted');
    await told.release(3);
    assert.deepEqual(await sizes(), [3]);
    const counted = await cache.openSource(source);
    await counted.release();
    assert.deepEqual(await sizes(), ['counted'.length]);
  });

  test('of clients take the digests of their files with them', async () => {
    const source = await cache.openSource({ id: 'context', description: 'local source for context' });
    await writeFile(source.digests, 'digests');
    await writeFile(`${source.digests}x`, 'of a directory that is gone');
    await source.release();
    await cache.close();
    await restart();
    assert.deepEqual(await readdir(dirname(source.digests)), [basename(source.digests)]);
    await cache.prune(EVERYTHING);
    assert.deepEqual(await readdir(dirname(source.digests)), []);
  });
});
