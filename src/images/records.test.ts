import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Image } from '../ports/images.js';
import type { OciDescriptor } from '../ports/published-image.js';
import type { Digest } from '../ports/storage.js';
import { DirectoryLayerStore } from '../../test/support/directory-layer-store.js';
import { ImageEntries } from './entries.js';
import { furtherKey } from './identity.js';
import type { ImageEntry } from './image-entry.js';
import { ImageRecords } from './records.js';
import { FileImageStore } from './store.js';

let dir: string;
let layers: DirectoryLayerStore;

const diff = (digit: string): Digest => `sha256:${digit.repeat(64)}`;
const configFor = (architecture: string, name: string, ...diffIds: Digest[]): Buffer =>
  Buffer.from(
    JSON.stringify({
      os: 'linux',
      architecture,
      config: { Labels: { name } },
      rootfs: { type: 'layers', diff_ids: diffIds },
    }),
  );

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'engined-images-'));
  layers = new DirectoryLayerStore(join(dir, 'layers'));
  await layers.load();
});
afterEach(() => rm(dir, { recursive: true, force: true }));

/** Opens a store that keeps indexes of these images; the first one has the record of the ID. */
async function openSets(
  images: readonly Buffer[] = [],
): Promise<{ store: FileImageStore; removed: readonly string[] }> {
  const opened = new FileImageStore(dir, layers, { identity: 'manifest' });
  const { removed } = await opened.load();
  const descriptor = (digit: string): OciDescriptor => ({ mediaType: 'm', digest: diff(digit), size: 1 });
  const manifests = ['a', 'b', 'c'].map(descriptor);
  opened.giveManifests({
    make: () => assert.fail('it is for an image alone'),
    makeSet: async () => ({
      images: images.map((config, at) => ({
        config,
        published: { target: descriptor('d'), manifests, own: manifests[at]?.digest ?? diff('a') },
      })),
      close: () => undefined,
    }),
  });
  return { store: opened, removed };
}

const createSet = (of: FileImageStore): Promise<Image> => of.createSet([], () => assert.fail('they are made already'));
const namesIn = (image: Image | undefined): unknown =>
  (image?.platforms ?? (image ? [image] : [])).map(({ config: { config: runtime } }) => runtime?.Labels?.['name']);

test('an image of several platforms is here as a whole or not at all, whatever a crash leaves', async () => {
  const staged = await layers.stage();
  const one = { parent: undefined, sizeBytes: 10, implicitDirs: [], danglingLinks: [], whiteouts: [] };
  await staged.commit({ diffId: diff('1'), ...one });
  const all = [configFor('arm64', 'arm', diff('1')), configFor('amd64', 'amd'), configFor('riscv64', 'riscv')];
  const sets = (await openSets(all)).store;
  const image = await createSet(sets);
  assert.deepEqual(namesIn(image), ['arm', 'amd', 'riscv']);
  assert.deepEqual(await createSet(sets), image);
  assert.deepEqual(namesIn((await openSets()).store.get(image.id)), ['arm', 'amd', 'riscv']);
  // So a kill leaves them while they are written, or deleted: the record of the ID comes last, and goes first.
  const content = join(dir, 'image/content');
  await rm(join(content, image.id.slice(7)));
  const { removed, store: after } = await openSets();
  assert.equal(removed.length, 2);
  assert.match(removed[0] ?? '', /it is a part of sha256:d+, which is not here as a whole$/);
  assert.deepEqual([after.list(), await readdir(content)], [[], []]);
  // One that fails leaves nothing either.
  const without = configFor('arm64', 'arm', diff('9'));
  for (const set of [
    [without, configFor('amd64', 'amd')],
    [configFor('amd64', 'amd'), without],
  ]) {
    const failing = (await openSets(set)).store;
    await assert.rejects(createSet(failing), { code: 'LAYER_MISSING' });
    assert.deepEqual([failing.list(), await readdir(content)], [[], []]);
  }
});

test('an image is written when its layers are on the disk, and not when they cannot come there', async () => {
  const content = join(dir, 'image/content');
  layers.recorded = () => Promise.reject(new Error('the disk has failed'));
  const { store } = await openSets();
  await assert.rejects(store.create(configFor('amd64', 'amd')), { message: 'the disk has failed' });
  assert.deepEqual([store.list(), await readdir(content)], [[], []]);
  let reach = (): void => undefined;
  layers.recorded = () => new Promise((resolve) => (reach = resolve));
  const creating = store.create(configFor('amd64', 'amd'));
  await new Promise(setImmediate);
  assert.deepEqual(await readdir(content), []);
  reach();
  await creating;
  assert.equal((await readdir(content)).length, 1);
});

test('the record of the ID goes over to another platform, at whichever moment a crash comes', async () => {
  const all = [configFor('arm64', 'arm'), configFor('amd64', 'amd'), configFor('riscv64', 'riscv')];
  let { store: sets } = await openSets(all);
  const { id, platforms: [arm, amd] = [] } = await createSet(sets);
  assert.ok(arm && amd);
  await sets.tag('x:1', id);
  const file = (place: string): string => join(dir, 'image', place, id.slice(7));
  const before = await readFile(file('content'));
  await sets.deletePlatform(arm);
  assert.deepEqual(namesIn(sets.get(id)), ['amd', 'riscv']);
  assert.equal((await readdir(join(dir, 'image/content'))).length, 2);
  // The release before has one image for an index, that of the record with this name.
  assert.deepEqual(await readFile(file('content')), all[1]);
  ({ store: sets } = await openSets(all));
  assert.deepEqual(namesIn(sets.resolve('x:1')), ['amd', 'riscv']);
  // Killed after the metadata are those of the next one, and then after its bytes are, too.
  const further = join(dir, 'image/content', furtherKey(id, amd.configDigest).slice(7));
  for (const bytes of [before, all[1] ?? before]) {
    await writeFile(file('content'), bytes);
    await writeFile(further, all[1] ?? before);
    await writeFile(`${further.replace('content', 'metadata')}.json`, await readFile(`${file('metadata')}.json`));
    const { store: next, removed } = await openSets();
    assert.deepEqual([removed, namesIn(next.resolve('x:1'))], [[], ['amd', 'riscv']]);
    assert.equal((await readdir(join(dir, 'image/content'))).length, 2);
  }
  // An image that comes while another one goes is not taken along.
  ({ store: sets } = await openSets(all));
  await Promise.all([sets.deletePlatform(amd), createSet(sets)]);
  ({ store: sets } = await openSets());
  assert.deepEqual(namesIn(sets.get(id)), ['arm', 'amd', 'riscv']);
});

test('an image comes again when all removals under its ID are over, not only the last', async () => {
  const entries = new ImageEntries(() => []);
  const records = new ImageRecords(join(dir, 'image'), { layers, entries });
  await records.open();
  const id = diff('d');
  const published = { target: { mediaType: 'm', digest: id, size: 1 }, own: diff('a'), manifests: [] };
  const create = (architecture: string): Promise<ImageEntry> => {
    const bytes = configFor(architecture, architecture);
    const configDigest: Digest = `sha256:${createHash('sha256').update(bytes).digest('hex')}`;
    return records.create({ id, configDigest }, bytes, { published });
  };
  const [first, second] = [await create('arm64'), await create('amd64')];
  // The first removal waits for what is written of its image.
  let isWritten = (): void => undefined;
  first.saving = new Promise((resolve) => (isWritten = resolve));
  const removals = [records.remove([first]), records.remove([second])];
  const again = create('arm64');
  await Promise.race([again, sleep(200)]);
  isWritten();
  await Promise.all([...removals, again]);
  const next = new ImageRecords(join(dir, 'image'), { layers, entries: new ImageEntries(() => []) });
  assert.deepEqual(await next.load(await next.open(), () => true), []);
  assert.equal(next.keys().length, 1);
});
