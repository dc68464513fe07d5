import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import type { Digest } from '../ports/storage.js';
import { DirectoryLayerStore } from '../../test/support/directory-layer-store.js';
import { type ImageUser, removeImage } from './removal.js';
import { pruneImages } from './prune.js';
import { type ImageSelection, selectImages } from './selection.js';
import { FileImageStore } from './store.js';

let dir: string;
let layers: DirectoryLayerStore;
let store: FileImageStore;
let users: Map<string, ImageUser[]>;
let events: string[];

beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'engined-removal-'));
  layers = new DirectoryLayerStore(join(dir, 'layers'));
  await layers.load();
  store = new FileImageStore(dir, layers);
  await store.load();
  users = new Map();
  events = [];
});
afterEach(() => rm(dir, { recursive: true, force: true }));

const deps = () => ({
  store,
  layers,
  users: (id: Digest) => users.get(id) ?? [],
  emit: (action: string, id: string) => void events.push(`${action} ${id}`),
});
const remove = (reference: string, force = false, pruneParents = true) =>
  removeImage(deps(), reference, { force, pruneParents });
const DIGEST = `sha256:${'d'.repeat(64)}`;

let serial = 0;
async function image(
  options: {
    readonly tags?: readonly string[];
    readonly digests?: readonly string[];
    readonly parent?: Digest;
    readonly layer?: string;
    readonly created?: string;
    readonly label?: string;
  } = {},
): Promise<Digest> {
  const diffIds: Digest[] = options.layer === undefined ? [] : [`sha256:${options.layer.repeat(64)}`];
  const [diffId] = diffIds;
  if (diffId)
    await (
      await layers.stage()
    ).commit({ diffId, parent: undefined, sizeBytes: 7, implicitDirs: [], danglingLinks: [], whiteouts: [] });
  const document = {
    os: 'linux',
    architecture: 'amd64',
    serial: serial++,
    created: options.created,
    config: { Labels: options.label ? { l: options.label } : null },
    rootfs: { type: 'layers', diff_ids: diffIds },
  };
  const { id } = await store.create(
    Buffer.from(JSON.stringify(document)),
    options.parent ? { parent: options.parent } : {},
  );
  for (const tag of options.tags ?? []) await store.tag(tag, id);
  for (const digest of options.digests ?? []) await store.addDigest(digest, id);
  return id;
}

const conflicts = (pattern: RegExp) => (error: unknown) =>
  isEngineError(error, 'conflict') && pattern.test(error.message);

test('removing the only tag removes its digests, the image and its layers', async () => {
  const id = await image({ tags: ['a:1'], digests: [`a@${DIGEST}`], layer: '1' });
  const layer = `sha256:${'1'.repeat(64)}`;
  assert.deepEqual(await remove('a:1'), [
    { untagged: 'a:1' },
    { untagged: `a@${DIGEST}` },
    { deleted: id },
    { deleted: layer },
  ]);
  assert.deepEqual(events, [`untag ${id}`, `untag ${id}`, `delete ${id}`]);
  await assert.rejects(
    remove('a:1'),
    (error) => isEngineError(error, 'not-found') && error.message === 'No such image: a:1',
  );
});

test('one of several tags is only untagged', async () => {
  const id = await image({ tags: ['a', 'b'], digests: [`a@${DIGEST}`] });
  assert.deepEqual(await remove('a'), [{ untagged: 'a:latest' }, { untagged: `a@${DIGEST}` }]);
  assert.deepEqual(store.get(id)?.repoTags, ['b:latest']);
});

test('an ID with tags in several repositories must be forced', async () => {
  const id = await image({ tags: ['a', 'b'] });
  const short = id.slice(7, 19);
  await assert.rejects(
    remove(short),
    conflicts(
      new RegExp(
        `^conflict: unable to delete ${short} \\(must be forced\\) - image is referenced in multiple repositories$`,
      ),
    ),
  );
  assert.deepEqual(await remove(short, true), [{ untagged: 'a:latest' }, { untagged: 'b:latest' }, { deleted: id }]);
});

test('an ID with one tag is removed with it', async () => {
  const id = await image({ tags: ['a'], digests: [`a@${DIGEST}`] });
  assert.deepEqual(await remove(id), [{ untagged: 'a:latest' }, { untagged: `a@${DIGEST}` }, { deleted: id }]);
});

test('containers keep their image; force overrules stopped ones only', async () => {
  const id = await image({ tags: ['a'] });
  const short = id.slice(7, 19);
  users.set(id, [{ id: 'c'.repeat(64), running: false }]);
  await assert.rejects(
    remove('a'),
    conflicts(
      new RegExp(
        '^conflict: unable to remove repository reference "a" \\(must force\\) - container c{12} is using ' +
          `its referenced image ${short}$`,
      ),
    ),
  );
  await assert.rejects(
    remove(short),
    conflicts(/\(must be forced\) - image is being used by stopped container c{12}$/),
  );
  users.set(id, [{ id: 'c'.repeat(64), running: true }]);
  await assert.rejects(
    remove(short, true),
    conflicts(/\(cannot be forced\) - image is being used by running container c{12}$/),
  );
  assert.deepEqual(store.get(id)?.repoTags, ['a:latest'], 'a refused removal changes nothing');
  assert.deepEqual(
    await remove('a', true),
    [{ untagged: 'a:latest' }],
    'the image of a running container loses only its name',
  );
  users.set(id, [{ id: 'c'.repeat(64), running: false }]);
  assert.deepEqual(await remove(short, true), [{ deleted: id }]);
});

test('parents without a name go along with their last child, unless noprune', async () => {
  const grand = await image({ tags: ['grand'] });
  const parent = await image({ parent: grand });
  const child = await image({ parent, tags: ['child'] });
  await assert.rejects(remove(parent), conflicts(/\(cannot be forced\) - image has dependent child images$/));
  assert.deepEqual(await remove('child'), [{ untagged: 'child:latest' }, { deleted: child }, { deleted: parent }]);
  assert.ok(store.get(grand));
  const again = await image({ parent: grand, tags: ['again'] });
  await remove('grand');
  assert.ok(store.get(grand), 'its child still needs it');
  assert.deepEqual(await remove('again', false, false), [{ untagged: 'again:latest' }, { deleted: again }]);
  assert.ok(store.get(grand));
});

test('an image that is being pulled is not removed', async () => {
  const id = await image();
  const release = store.hold(id);
  await assert.rejects(remove(id, true), conflicts(/being pulled/));
  release();
  release();
  await remove(id);
});

test('a tag that looks like the ID of its image is a tag', async () => {
  const id = await image({ tags: ['x'] });
  const name = id.slice(7, 10);
  await store.tag(name, id);
  assert.deepEqual(await remove(name), [{ untagged: `${name}:latest` }]);
});

const everything = { danglingOnly: false, untilMs: undefined, matchesLabels: () => true };

test('prune takes untagged images, all of them or those without containers', async () => {
  const dangling = await image({ layer: '2' });
  const digestOnly = await image({ digests: [`d@${DIGEST}`] });
  const tagged = await image({ tags: ['t'] });
  const used = await image({ tags: ['u'] });
  users.set(used, [{ id: 'c'.repeat(64), running: false }]);
  const first = await pruneImages(
    { ...deps(), layerBytes: async (ids) => new Map(ids.map((id) => [id, 7])) },
    { ...everything, danglingOnly: true },
    new AbortController().signal,
  );
  assert.equal(first.reclaimedBytes, 7);
  assert.ok(!store.get(dangling) && !store.get(digestOnly) && store.get(tagged) && store.get(used));
  await pruneImages(
    { ...deps(), layerBytes: async (ids) => new Map(ids.map((id) => [id, 7])) },
    everything,
    new AbortController().signal,
  );
  assert.ok(!store.get(tagged) && store.get(used));
  assert.equal(events.at(-1), 'prune ');
});

test('prune keeps what is young or has the wrong label', async () => {
  const old = await image({ created: '2020-01-01T00:00:00Z', label: 'a' });
  const young = await image({ created: '2024-01-01T00:00:00Z', label: 'a' });
  const other = await image({ created: '2020-01-01T00:00:00Z', label: 'b' });
  await pruneImages(
    { ...deps(), layerBytes: async (ids) => new Map(ids.map((id) => [id, 7])) },
    { danglingOnly: true, untilMs: Date.parse('2022-01-01'), matchesLabels: (labels) => labels?.['l'] === 'a' },
    new AbortController().signal,
  );
  assert.ok(!store.get(old) && store.get(young) && store.get(other));
});

test('lists are filtered as clients expect', async () => {
  const one = await image({ tags: ['repo/one:1', 'other'], created: '2020-01-01T00:00:00Z' });
  const two = await image({
    tags: ['repo/two'],
    created: '2021-01-01T00:00:00Z',
    label: 'x',
    digests: [`repo/two@${DIGEST}`],
  });
  const three = await image({ created: '2022-01-01T00:00:00Z', parent: two });
  const all: ImageSelection = {
    all: false,
    dangling: undefined,
    before: [],
    since: [],
    untilMs: undefined,
    reference: [],
    matchesLabels: () => true,
  };
  const ids = (selection: Partial<ImageSelection>) =>
    selectImages(store, { ...all, ...selection }).map((selected) => selected.image.id);
  assert.deepEqual(ids({}), [three, two, one]);
  assert.deepEqual(ids({ dangling: true }), [three]);
  assert.deepEqual(ids({ dangling: false }), [two, one]);
  assert.deepEqual(ids({ before: ['repo/two'] }), [one]);
  assert.deepEqual(ids({ since: ['other'] }), [three, two]);
  assert.deepEqual(ids({ untilMs: Date.parse('2021-06-01') }), [two, one]);
  assert.deepEqual(ids({ reference: ['repo/*'] }), [two, one]);
  assert.deepEqual(ids({ reference: ['o*:l?test'] }), [one]);
  assert.deepEqual(selectImages(store, { ...all, reference: ['other'] })[0]?.repoTags, ['other:latest']);
  assert.throws(
    () => ids({ before: ['nothing'] }),
    (error) => isEngineError(error, 'not-found'),
  );
  const hidden = await image({ created: '2023-01-01T00:00:00Z' });
  await image({ parent: hidden, created: '2024-01-01T00:00:00Z' });
  assert.ok(!ids({}).includes(hidden) && ids({ all: true }).includes(hidden));
});
