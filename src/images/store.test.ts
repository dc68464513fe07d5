import assert from 'node:assert/strict';
import { mkdtemp, readdir, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as nextLoop } from 'node:timers/promises';
import { afterEach, beforeEach, test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import type { OciDescriptor, PublishedImage } from '../ports/published-image.js';
import type { Digest } from '../ports/storage.js';
import { DirectoryLayerStore } from '../../test/support/directory-layer-store.js';
import { FileImageStore } from './store.js';

let dir: string;
let layers: DirectoryLayerStore;
let store: FileImageStore;

const diff = (digit: string): Digest => `sha256:${digit.repeat(64)}`;

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'engined-images-'));
  layers = new DirectoryLayerStore(join(dir, 'layers'));
  await layers.load();
  store = new FileImageStore(dir, layers);
  await store.load();
});
afterEach(() => rm(dir, { recursive: true, force: true }));

async function layer(diffId: Digest, parent?: Digest): Promise<Digest> {
  const staged = await layers.stage();
  return (await staged.commit({ diffId, parent, sizeBytes: 10, implicitDirs: [], danglingLinks: [], whiteouts: [] }))
    .chainId;
}

function config(name: string, ...diffIds: Digest[]): Buffer {
  return configFor('amd64', name, ...diffIds);
}

function configFor(architecture: string, name: string, ...diffIds: Digest[]): Buffer {
  return Buffer.from(
    '{"os":"linux", ' +
      `"architecture":"${architecture}","config":{"Labels":{"name":"${name}"}},"rootfs":{"type":"layers",` +
      `"diff_ids":${JSON.stringify(diffIds)}}}`,
  );
}

const isNotFound = (message: string) => (error: unknown) =>
  isEngineError(error, 'not-found') && error.message === message;

test('an image is found by name, ID and unique prefix', async () => {
  await layer(diff('1'));
  const image = await store.create(config('a', diff('1')));
  await store.tag('a:1', image.id);
  await store.tag('localhost:5000/b', image.id);
  await store.addDigest(`a@${diff('d')}`, image.id);
  for (const reference of [
    'a:1',
    'docker.io/library/a:1',
    'localhost:5000/b:latest',
    image.id,
    image.id.slice(7),
    image.id.slice(0, 20),
    image.id.slice(7, 19),
    `a@${diff('d')}`,
    `a:other@${diff('d')}`,
  ]) {
    assert.equal(store.resolve(reference).id, image.id, reference);
  }
  assert.deepEqual(store.get(image.id)?.repoTags, ['a:1', 'localhost:5000/b:latest']);
  assert.deepEqual(store.get(image.id)?.repoDigests, [`a@${diff('d')}`]);
  assert.equal(image.sizeBytes, 10);
  assert.throws(() => store.resolve('a'), isNotFound('No such image: a:latest'));
  assert.throws(() => store.resolve(`b@${diff('d')}`), isNotFound(`No such image: b@${diff('d')}`));
  assert.throws(() => store.resolve(diff('e')), isNotFound(`No such image: ${diff('e')}`));
  assert.throws(
    () => store.resolve('Bad Name'),
    (error) => isEngineError(error, 'invalid'),
  );
});

test('of images that came with manifests these are the IDs', async () => {
  await layer(diff('1'));
  const [amd, arm, plain] = [config('amd', diff('1')), configFor('arm64', 'arm'), config('plain')];
  const descriptor = (digit: string): OciDescriptor => ({ mediaType: 'm', digest: diff(digit), size: 1 });
  const published = (own: string): PublishedImage => ({
    target: descriptor('d'),
    manifests: [descriptor('e'), descriptor('f')],
    own: diff(own),
  });
  const byManifest = new FileImageStore(dir, layers, { identity: 'manifest' });
  await byManifest.load();
  const [one, other] = await Promise.all([
    byManifest.create(amd, { published: published('e') }),
    byManifest.create(arm, { published: published('f') }),
  ]);
  assert.deepEqual([one.id, other.id], [diff('d'), diff('d')]);
  assert.equal((await byManifest.create(amd, { published: published('e') })).id, one.id);
  const made = await byManifest.create(plain, { parent: one.id });
  assert.equal(made.id, made.configDigest);
  await byManifest.tag(['a:1', 'b:1', 'b:2'], one.id);
  const digests = [`a@${diff('d')}`, `b@${diff('d')}`];
  // The image keeps the document that its ID is of.
  await byManifest.describe(one.id, { ...published('e'), target: descriptor('9') });
  const check = async (store: FileImageStore): Promise<void> => {
    for (const reference of ['a:1', diff('d'), 'dddddd', `b@${diff('d')}`])
      assert.equal(store.resolve(reference).id, one.id, reference);
    assert.deepEqual(store.get(one.id)?.repoDigests, digests);
    assert.deepEqual(store.get(one.id)?.published, published('e'));
    assert.deepEqual(await store.configBytes(one), amd);
    assert.deepEqual(await store.knownConfig(other.configDigest), arm);
    assert.deepEqual(store.childrenOf(one.id), [made.id]);
    const platforms = store.get(one.id)?.platforms?.map(({ configDigest }) => configDigest);
    assert.deepEqual(platforms, [one.configDigest, other.configDigest]);
  };
  await check(byManifest);
  const reopened = new FileImageStore(dir, layers, { identity: 'manifest' });
  assert.deepEqual(await reopened.load(), { removed: [] });
  await check(reopened);
  await writeFile(join(dir, 'image/content', diff('f').slice(7)), amd);
  const { removed } = await new FileImageStore(dir, layers, { identity: 'manifest' }).load();
  assert.deepEqual(removed, [`image ${diff('f')}: its configuration is damaged`]);
});

test('an index is one image, with those of all platforms that came', async () => {
  await layer(diff('1'));
  await layer(diff('2'));
  const descriptor = (digit: string): OciDescriptor => ({ mediaType: 'm', digest: diff(digit), size: 1 });
  const of = (own: string, target = 'd'): { published: PublishedImage } => ({
    published: { target: descriptor(target), manifests: ['a', 'b', 'c'].map(descriptor), own: diff(own) },
  });
  const open = async (): Promise<FileImageStore> => {
    const opened = new FileImageStore(dir, layers, { identity: 'manifest' });
    assert.deepEqual(await opened.load(), { removed: [] });
    return opened;
  };
  let one = await open();
  const [arm, amd, riscv] = [
    configFor('arm64', 'arm', diff('1')),
    configFor('amd64', 'amd', diff('2')),
    configFor('riscv64', 'riscv'),
  ];
  // The same image, pulled by the digest of its manifest, is another one.
  const alone = await one.create(arm, of('a', 'a'));
  const first = await one.create(arm, of('a'));
  await one.tag('x:1', first.id);
  const tagged = one.get(first.id)?.lastTagTime;
  assert.equal(one.get(first.id)?.platforms, undefined);
  const image = await one.create(riscv, of('c'));
  const host = await one.create(amd, of('b'));
  assert.deepEqual(
    [first, image, host].map(({ id }) => id),
    [diff('d'), diff('d'), diff('d')],
  );
  assert.equal(one.list().length, 2);
  assert.equal(one.get(alone.id)?.platforms, undefined);
  for (let life = 0; life < 2; life++) {
    // This machine runs the one, and the others are in the order of the index.
    const shown = one.resolve('x:1');
    assert.equal(shown.config.config?.Labels?.['name'], 'amd');
    assert.equal(shown.lastTagTime, tagged);
    const names = shown.platforms?.map(({ config: { config: runtime }, repoTags }) => [
      runtime?.Labels?.['name'],
      repoTags,
    ]);
    assert.deepEqual(names, [
      ['arm', ['x:1']],
      ['amd', ['x:1']],
      ['riscv', ['x:1']],
    ]);
    assert.deepEqual([...one.layersOf(shown.id)].sort(), [diff('1'), diff('2')]);
    for (const [at, bytes] of [arm, amd, riscv].entries())
      assert.deepEqual(await one.configBytes(shown.platforms?.[at] ?? shown), bytes);
    assert.equal(one.find(host.configDigest, host.published)?.configDigest, host.configDigest);
    assert.equal(one.find(host.configDigest, of('b', '9').published), undefined);
    await one.setPublished(host, { ...of('b').published, contentBytes: 7 });
    assert.deepEqual(
      one.get(shown.id)?.platforms?.map(({ published }) => published?.contentBytes),
      [undefined, 7, undefined],
    );
    one = await open();
  }
  // The first one has the record of the ID, and goes without the others.
  await one.deletePlatform(first);
  await one.deletePlatform(host);
  one = await open();
  assert.equal(one.resolve('x:1').config.config?.Labels?.['name'], 'riscv');
  assert.equal((await one.create(arm, of('a'))).id, diff('d'));
  assert.equal((await open()).get(diff('d'))?.platforms?.length, 2);
  await one.delete(diff('d'));
  one = await open();
  assert.deepEqual(
    one.list().map(({ id }) => id),
    [alone.id],
  );
  assert.deepEqual(one.keys(), [alone.id]);
});

test('an image that comes once more without what is attested of it keeps that', async () => {
  const target = { mediaType: 'm', digest: diff('d'), size: 1 };
  const published: PublishedImage = { target, manifests: [], own: diff('a') };
  const image = await store.create(config('a'), { published });
  const attestedIn = (): unknown => store.get(image.id)?.published?.attested;
  const attested = { digest: diff('e'), contentBytes: 3 };
  await store.setPublished(image, { ...published, attested });
  await store.setPublished(image, { ...published, contentBytes: 7 });
  assert.deepEqual([store.get(image.id)?.published?.contentBytes, attestedIn()], [7, attested]);
  await store.setPublished(image, { ...published, target: { ...target, digest: diff('f') } });
  assert.equal(attestedIn(), undefined);
});

test('an image of an index keeps the ID that it had of its manifest', async () => {
  const descriptor = (digit: string): OciDescriptor => ({ mediaType: 'm', digest: diff(digit), size: 1 });
  const published = { target: descriptor('d'), manifests: [descriptor('a'), descriptor('b')], own: diff('a') };
  const [arm, amd] = [configFor('arm64', 'arm'), config('amd')];
  const before = new FileImageStore(dir, layers, { identity: 'manifest' });
  await before.load();
  // So it was written when an index had one image.
  const old = await before.create(arm, { published: { ...published, target: descriptor('a') } });
  await before.setPublished(old, published);
  await before.tag('x:1', old.id);
  const now = new FileImageStore(dir, layers, { identity: 'manifest' });
  assert.deepEqual(await now.load(), { removed: [] });
  assert.equal(now.resolve('x:1').id, diff('a'));
  assert.equal((await now.create(amd, { published: { ...published, own: diff('b') } })).id, diff('d'));
  assert.equal((await now.create(arm, { published })).id, diff('d'));
  assert.deepEqual(
    now.list().map(({ id, platforms }) => [id, platforms?.length]),
    [
      [diff('a'), undefined],
      [diff('d'), 2],
    ],
  );
});

test('an ambiguous prefix finds nothing', async () => {
  const ids = await Promise.all(
    Array.from({ length: 40 }, async (_, index) => (await store.create(config(String(index)))).id),
  );
  const first = ids.map((id) => id.charAt(7)).find((digit, index, all) => all.indexOf(digit) !== index);
  assert.throws(
    () => store.resolve(`sha256:${first}`),
    (error) => isEngineError(error, 'not-found'),
  );
});

test('configurations are kept byte for byte and everything survives a restart', async () => {
  await layer(diff('1'));
  const bytes = config('kept', diff('1'));
  const parent = await store.create(config('parent'));
  const { id } = await store.create(bytes, { parent: parent.id });
  await store.tag('kept', id);
  const lastTagTime = store.get(id)?.lastTagTime;
  assert.ok(lastTagTime);

  const reopened = new FileImageStore(dir, layers);
  assert.deepEqual(await reopened.load(), { removed: [] });
  assert.deepEqual(await reopened.configBytes({ id, configDigest: id }), bytes);
  assert.deepEqual(reopened.get(id), store.get(id));
  assert.deepEqual(reopened.childrenOf(parent.id), [id]);
});

test('what a crash left is repaired and reported', async () => {
  await layer(diff('1'));
  const whole = await store.create(config('whole', diff('1')));
  const damaged = await store.create(config('damaged'));
  const layerless = await store.create(config('layerless', diff('1')));
  for (const [name, { id }] of [
    ['whole', whole],
    ['damaged', damaged],
    ['layerless', layerless],
  ] as const)
    await store.tag(name, id);
  await writeFile(join(dir, 'image/content', damaged.id.slice(7)), 'torn');
  await writeFile(join(dir, 'image/content', `${whole.id.slice(7)}.tmp-0123456789ab`), 'torn');
  await writeFile(join(dir, 'image/metadata', `${'f'.repeat(64)}.json`), '{}');

  const empty = new DirectoryLayerStore(join(dir, 'empty'));
  await empty.load();
  const onlyWhole = new FileImageStore(dir, layers);
  const { removed } = await onlyWhole.load();
  assert.deepEqual(removed, [
    `image ${damaged.id}: its configuration is damaged`,
    'name docker.io/library/damaged:latest of a missing image',
  ]);
  assert.equal(onlyWhole.list().length, 2);
  assert.equal((await readdir(join(dir, 'image/content'))).length, 2);
  const nothing = new FileImageStore(dir, empty);
  assert.equal((await nothing.load()).removed.length, 4);
  assert.deepEqual(await readdir(join(dir, 'image/content')), []);
  assert.deepEqual(
    (await readdir(join(dir, 'image/metadata'))).filter((name) => name.startsWith('f')),
    [],
  );
});

test('damaged names are put aside; the images stay', async () => {
  const { id } = await store.create(config('a'));
  await store.tag('a', id);
  await writeFile(join(dir, 'image/references.json'), '{"version":1,"val');
  const reopened = new FileImageStore(dir, layers);
  const { removed } = await reopened.load();
  assert.match(removed[0] ?? '', /damaged image names, put aside as /);
  assert.deepEqual(reopened.get(id)?.repoTags, []);
  await reopened.tag('a', id);
  assert.equal(reopened.resolve('a').id, id);
});

test('an image that has the name already gets a new time only, unless names are just changing', async () => {
  const { id } = await store.create(config('again'));
  const names = join(dir, 'image/references.json');
  await store.tag('again', id);
  const [before, { ino }] = [store.get(id)?.lastTagTime ?? '', await stat(names)];
  while (Date.now() <= Date.parse(before)) await nextLoop();
  await store.tag('again', id);
  assert.equal((await stat(names)).ino, ino);
  const after = store.get(id)?.lastTagTime ?? '';
  assert.ok(after > before, `${after} after ${before}`);
  await Promise.all([store.untag(['docker.io/library/again:latest']), store.tag('again', id)]);
  assert.equal(store.resolve('again').id, id);
  const reopened = new FileImageStore(dir, layers);
  await reopened.load();
  assert.ok((reopened.get(id)?.lastTagTime ?? '') >= after);
  assert.equal(reopened.resolve('again').id, id);
});

test('a new time is on the disk when the store is closed, and brings no image back that is gone', async () => {
  const [{ id }, gone] = [await store.create(config('timed')), await store.create(config('gone'))];
  const twice = async (): Promise<void> => {
    for (const [name, image] of [
      ['timed', id],
      ['gone', gone.id],
    ] as const)
      await store.tag(name, image);
  };
  await twice();
  const first = Date.parse(store.get(id)?.lastTagTime ?? '');
  while (Date.now() <= first) await nextLoop();
  await twice();
  await store.untag(['docker.io/library/gone:latest']);
  await store.delete(gone.id);
  await store.close();
  const records = await readdir(join(dir, 'image/metadata'));
  assert.ok(records.includes(`${id.slice(7)}.json`) && !records.includes(`${gone.id.slice(7)}.json`), records.join());
  const reopened = new FileImageStore(dir, layers);
  await reopened.load();
  assert.equal(reopened.get(id)?.lastTagTime, store.get(id)?.lastTagTime);
  assert.ok(Date.parse(reopened.get(id)?.lastTagTime ?? '') > first);
});

test('creating is idempotent, also at the same time, and holds one reference on the layers', async () => {
  const chain = await layer(diff('1'));
  const bytes = config('a', diff('1'));
  const images = await Promise.all([store.create(bytes), store.create(bytes), store.create(bytes)]);
  assert.equal(new Set(images).size, 1);
  const id = images[0]?.id;
  assert.ok(id);
  assert.deepEqual(await store.delete(id), [chain]);
  assert.equal(layers.find(chain), undefined);
  await assert.rejects(store.create(bytes), (error) => isEngineError(error, 'data-loss'));
});

test('a tag moves and leaves its old image without a name', async () => {
  const [one, two] = [await store.create(config('1')), await store.create(config('2'))];
  let changes = 0;
  const stop = store.onChange(() => changes++);
  await Promise.all([store.tag('x', one.id), store.tag('y', one.id), store.tag('x', two.id)]);
  assert.equal(changes, 3);
  stop();
  assert.deepEqual(store.get(one.id)?.repoTags, ['y:latest']);
  assert.deepEqual(store.get(two.id)?.repoTags, ['x:latest']);
  assert.ok(
    store.stillNames('x', two.id) && !store.stillNames('x', one.id) && store.stillNames(one.id.slice(7, 20), one.id),
  );
});
