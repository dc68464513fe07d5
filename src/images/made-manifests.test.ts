import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { MemoryContent } from '../../test/support/memory-content.js';
import { ImageAnnotations } from '../build/outputs/annotations.js';
import { imageSet } from '../build/outputs/image-set.js';
import { dataLoss } from '../errors/engine-error.js';
import { chainOf } from '../ports/chain-id.js';
import type { ImageSet, LeavingLayer } from '../ports/image-set.js';
import type { Image, ImageStore } from '../ports/images.js';
import type { Logger } from '../ports/logger.js';
import type { PublishedImage } from '../ports/published-image.js';
import type { Digest } from '../ports/storage.js';
import { KeptContent } from '../registry/kept-content.js';
import type { WorkerPool } from '../workers/pool.js';
import { type MadeManifest, MadeManifests } from './made-manifests.js';

const digestOf = (text: string | Buffer): Digest => `sha256:${createHash('sha256').update(text).digest('hex')}`;
const [LOW, MIDDLE, HIGH] = ['low', 'middle', 'high'].map(digestOf) as [Digest, Digest, Digest];

let directory: string;
let content: MemoryContent;
let images: Image[];
let compressed: Digest[];
let changed: () => void;
let kept: KeptContent;
let manifests: MadeManifests;
let damaged: Digest | undefined;

/** Writes the digest of the layer in the place of its tar. */
const pool = {
  run: async (name: string, { diffId, path }: { readonly diffId: Digest; readonly path: string }) => {
    assert.equal(name, 'compress-layer');
    compressed.push(diffId);
    await turn();
    if (diffId === damaged) throw dataLoss('it was changed');
    const blob = `compressed ${diffId}`;
    await writeFile(path, blob, { flag: 'wx' });
    return { digest: digestOf(blob), sizeBytes: blob.length, diffId };
  },
} as unknown as WorkerPool;

beforeEach(async () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  directory = await mkdtemp(join(tmpdir(), 'made-'));
  [content, images, compressed, damaged] = [new MemoryContent(), [], [], undefined];
  const store: Pick<ImageStore, 'list' | 'onChange'> = {
    list: () => images,
    onChange: (listener) => ((changed = listener), () => undefined),
  };
  const log = { warn: (_: object, text: string) => assert.fail(text) } as unknown as Logger;
  kept = new KeptContent({ content, lease: () => 'lease', images: store, log });
  await kept.load();
  const openTar = (chainId: Digest) => {
    const diffId = diffOf.get(chainId) ?? assert.fail(chainId);
    return { diffDir: '', tarSplitPath: '', diffId, close: () => undefined };
  };
  manifests = new MadeManifests({ kept, images: store, layers: { openTar }, pool, tmpDir: directory });
});
afterEach(async () => {
  mock.timers.reset();
  await rm(directory, { recursive: true });
});

/** The diff IDs of the layers with these chain IDs. */
const diffOf = new Map(
  [
    [LOW, MIDDLE, HIGH],
    [LOW, HIGH],
  ].flatMap((diffIds) => chainOf(diffIds).map((chain, at) => [chain, diffIds[at]] as const)),
);

const configOf = (...diffIds: Digest[]): Buffer =>
  Buffer.from(JSON.stringify({ os: 'linux', rootfs: { type: 'layers', diff_ids: diffIds } }));

/** Makes an image as the store does. */
async function make(...diffIds: Digest[]): Promise<MadeManifest> {
  const config = configOf(...diffIds);
  const made = await manifests.make(config, diffIds);
  const id = made.published.target.digest;
  images.push({ id, config: JSON.parse(config.toString()), published: made.published } as unknown as Image);
  changed();
  made.close();
  return made;
}

async function later(): Promise<void> {
  mock.timers.tick(1_000);
  for (let i = 0; i < 20; i++) await turn();
}

const blobOf = (diffId: Digest): Digest => digestOf(`compressed ${diffId}`);

test('a manifest names configuration and layers, and holds them while there is an image of it', async () => {
  const { published } = await make(LOW, MIDDLE);
  await later();
  const { target, manifests: entries, own } = published;
  assert.deepEqual([entries, own], [[target], target.digest]);
  const bytes = content.blobs.get(target.digest)?.bytes ?? Buffer.alloc(0);
  const { layers, config } = JSON.parse(bytes.toString());
  assert.equal(config.digest, digestOf(configOf(LOW, MIDDLE)));
  assert.deepEqual(
    layers.map(({ digest, mediaType }: { digest: string; mediaType: string }) => [digest, mediaType]),
    [LOW, MIDDLE].map((diffId) => [blobOf(diffId), 'application/vnd.oci.image.layer.v1.tar+gzip']),
  );
  await content.collect();
  const all = [target.digest, config.digest, blobOf(LOW), blobOf(MIDDLE)];
  assert.deepEqual(new Set(content.blobs.keys()), new Set(all));
  assert.deepEqual([...content.leased], [target.digest]);
  const sizes = [...content.blobs.values()].map((blob) => blob.bytes.length);
  assert.equal(
    published.contentBytes,
    sizes.reduce((sum, size) => sum + size, 0),
  );
  images = [];
  changed();
  await later();
  assert.deepEqual([...content.blobs.keys()], []);
  assert.deepEqual(await readdir(directory), []);
});

test('a layer that an image has is not compressed again, and one that is gone is', async () => {
  const first = await make(LOW, MIDDLE);
  const next = await make(LOW, MIDDLE, HIGH);
  assert.deepEqual(compressed.splice(0).sort(), [LOW, MIDDLE, HIGH].sort());
  assert.equal((await make(LOW, MIDDLE)).published.own, first.published.own);
  assert.deepEqual(compressed, []);
  // The layers stay for the image that is left.
  images = images.filter(({ id }) => id === next.published.own);
  changed();
  await later();
  await content.collect();
  assert.ok(content.blobs.has(blobOf(LOW)));
  content.blobs.delete(blobOf(LOW));
  await make(LOW, HIGH);
  assert.deepEqual(new Set(compressed), new Set([LOW, HIGH]));
});

test('images that are made at a time have a common layer compressed once', async () => {
  const all = await Promise.all([make(LOW), make(LOW), make(LOW, HIGH)]);
  assert.equal(all[0].published.own, all[1].published.own);
  assert.deepEqual(compressed.sort(), [LOW, HIGH].sort());
  await later();
  await content.collect();
  assert.ok([LOW, HIGH].every((diffId) => content.blobs.has(blobOf(diffId))));
});

test('what is made for no image goes, and so does what a damaged layer leaves', async () => {
  const made = await manifests.make(configOf(LOW), [LOW]);
  changed();
  await later();
  assert.ok(content.blobs.has(made.published.own));
  made.close();
  await later();
  assert.deepEqual([...content.blobs.keys()], []);
  damaged = MIDDLE;
  await assert.rejects(manifests.make(configOf(LOW, MIDDLE), [LOW, MIDDLE]), { kind: 'data-loss' });
  await later();
  assert.deepEqual([[...content.blobs.keys()], await readdir(directory)], [[], []]);
});

test('a write that a daemon before has not ended keeps nothing', async () => {
  const bytes = Buffer.from('left');
  content.blobs.set(digestOf('left'), { bytes, labels: {} });
  content.unfinished.add(digestOf('left'));
  await kept.load();
  assert.deepEqual([...content.blobs.keys()], []);
});

test('an index leads to the images of all platforms and what is attested of them, and goes with them', async () => {
  const documents = async (layers: readonly (readonly LeavingLayer[])[]): Promise<ImageSet> => {
    const result = { scanned: [], recipe: () => ({ materials: [], steps: [], secrets: [], ssh: [] }) };
    const parts = layers.map((own, at) => {
      const rootfs = { type: 'layers', diff_ids: own.map(({ diffId }) => diffId) };
      const architecture = ['amd64', 'arm64'][at] ?? '';
      const config = { os: 'linux', architecture, rootfs };
      const platform = `linux/${architecture}`;
      return { result: { ...result, platform, config, topLayer: undefined, baseLayers: 0 }, layers: own };
    });
    const stated = {
      predicateType: 't',
      predicate: { kind: 'value', value: {} },
      subjects: ['s'],
      fileName: 'f',
    } as const;
    return imageSet(parts, {
      format: 'oci',
      created: '',
      annotations: new ImageAnnotations(new Map()),
      attest: ({ platform }) => [{ ...stated, predicateType: `t${platform}` }],
    });
  };
  const made = await manifests.makeSet(
    [
      [LOW, MIDDLE],
      [LOW, HIGH],
    ],
    documents,
  );
  assert.deepEqual(compressed.sort(), [LOW, MIDDLE, HIGH].sort());
  images = made.images.map(({ config, published }) => {
    return { id: published.target.digest, config: JSON.parse(config.toString()), published } as unknown as Image;
  });
  changed();
  made.close();
  await later();
  const [amd, arm] = made.images.map(({ published }) => published);
  assert.ok(amd?.attested && arm?.attested);
  assert.equal(amd.manifests.length, 4);
  assert.deepEqual([...content.leased], [amd.target.digest]);
  const left = (): number => [...content.blobs.values()].reduce((sum, { bytes }) => sum + bytes.length, 0);
  await content.collect();
  const shared = content.blobs.get(blobOf(LOW))?.bytes.length ?? 0;
  const sum = [amd, arm].reduce(
    (all, { contentBytes = 0, attested }) => all + contentBytes + (attested?.contentBytes ?? 0),
    0,
  );
  assert.equal(left(), amd.target.size + sum - shared);
  const image = await kept.imageOf({ configDigest: configIn(amd), published: amd });
  assert.equal(image?.isWhole, true);
  assert.equal(image.others.length, 3);
  image.close();
  // One of the platforms goes, and takes along what is attested of it.
  images = images.filter(({ published }) => published?.own === arm.own);
  await kept.dropPlatform({ published: amd });
  assert.ok(!content.blobs.has(amd.own) && !content.blobs.has(amd.attested.digest));
  assert.ok(content.blobs.has(arm.own) && content.blobs.has(arm.attested.digest));
  images = [];
  changed();
  await later();
  assert.deepEqual([...content.blobs.keys()], []);
});

/** The digest of the configuration that a kept manifest names. */
function configIn({ own }: PublishedImage): Digest {
  const { config } = JSON.parse(String(content.blobs.get(own)?.bytes)) as {
    readonly config: { readonly digest: Digest };
  };
  return config.digest;
}
