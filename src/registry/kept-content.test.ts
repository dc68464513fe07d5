import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, mock, test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import type { Image } from '../ports/images.js';
import type { Logger } from '../ports/logger.js';
import type { Digest } from '../ports/storage.js';
import { MemoryContent } from '../../test/support/memory-content.js';
import { KeptContent } from './kept-content.js';
import type { ResolvedImage } from './resolve.js';

const digestOf = (text: string | Buffer): Digest => `sha256:${createHash('sha256').update(text).digest('hex')}`;

interface TestImage {
  readonly resolved: ResolvedImage;
  readonly image: Image;
  readonly all: ReadonlySet<Digest>;
}

/** An image of an index, with layers of these texts. */
function imageOf(...layers: string[]): TestImage {
  const [image] = imagesOf(layers);
  assert.ok(image);
  return image;
}

/** The images of one index. */
function imagesOf(...contents: string[][]): TestImage[] {
  const parts = contents.map(partsOf);
  const manifests = parts.map(({ entry }) => entry);
  const index = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.index.v1+json',
      manifests,
    }),
  );
  const target = {
    mediaType: 'application/vnd.oci.image.index.v1+json',
    digest: digestOf(index),
    size: index.length,
  };
  return parts.map(({ manifest, entry, configBytes, layers }) => {
    const published = { target, manifests, own: entry.digest };
    const id = digestOf(configBytes);
    const documents = [
      { digest: target.digest, bytes: index },
      { digest: entry.digest, bytes: manifest },
    ];
    const blobs = layers.map((text) => ({
      blob: { digest: digestOf(text), sizeBytes: text.length },
    }));
    return {
      resolved: {
        configDigest: id,
        configBytes,
        layers: blobs,
        documents,
        published,
      } as unknown as ResolvedImage,
      image: { id, configDigest: id, published } as unknown as Image,
      all: new Set([target.digest, entry.digest, id, ...layers.map(digestOf)]),
    };
  });
}

function partsOf(layers: string[]) {
  const configBytes = Buffer.from(JSON.stringify({ os: 'linux', layers }));
  const descriptor = (mediaType: string, text: string | Buffer): object => ({
    mediaType,
    digest: digestOf(text),
    size: text.length,
  });
  const manifest = Buffer.from(
    JSON.stringify({
      schemaVersion: 2,
      mediaType: 'application/vnd.oci.image.manifest.v1+json',
      config: descriptor('application/vnd.oci.image.config.v1+json', configBytes),
      layers: layers.map((text) => descriptor('application/vnd.oci.image.layer.v1.tar+gzip', text)),
    }),
  );
  const entry = {
    mediaType: 'application/vnd.oci.image.manifest.v1+json',
    digest: digestOf(manifest),
    size: manifest.length,
  };
  return { configBytes, manifest, entry, layers };
}

let directory: string;
let content: MemoryContent;
let images: Image[];
let warnings: string[];
let changed: () => void;
let kept: KeptContent;
const log = {
  warn: (_: object, message: string) => warnings.push(message),
} as unknown as Logger;

beforeEach(async () => {
  mock.timers.enable({ apis: ['setTimeout'] });
  directory = await mkdtemp(join(tmpdir(), 'kept-'));
  [content, images, warnings] = [new MemoryContent(), [], []];
  const store = {
    list: () => images,
    onChange: (listener: () => void) => ((changed = listener), () => undefined),
  };
  kept = new KeptContent({ content, lease: () => 'lease', images: store, log });
  await kept.load();
});
afterEach(async () => {
  mock.timers.reset();
  await rm(directory, { recursive: true });
});

async function keepLayers(...texts: string[]): Promise<void> {
  for (const text of texts) {
    const path = join(directory, 'blob');
    await writeFile(path, text);
    await kept.keepLayer({ digest: digestOf(text), sizeBytes: text.length }, digestOf(`tar of ${text}`), path);
  }
}

async function later(): Promise<void> {
  mock.timers.tick(1_000);
  for (let i = 0; i < 20; i++) await turn();
}

const there = (): Set<Digest> => new Set(content.blobs.keys());

test('an image is kept whole by one document, until it goes', async () => {
  const [one, other] = [imageOf('a', 'shared'), imageOf('b', 'shared')];
  await keepLayers('a', 'shared', 'b');
  images = [one.image, other.image];
  await kept.keepImage(one.resolved);
  await kept.keepImage(other.resolved);
  assert.deepEqual(content.leased, new Set([one, other].map(({ image }) => image.published?.target.digest)));
  await content.collect();
  assert.deepEqual(there(), new Set([...one.all, ...other.all]));
  images = [other.image];
  changed();
  await later();
  assert.deepEqual(there(), other.all);
  assert.deepEqual(warnings, []);
});

test('of two images of one index neither takes the place of the other', async () => {
  const [one, other] = imagesOf(['a'], ['b']);
  assert.ok(one && other);
  await keepLayers('a', 'b');
  images = [one.image, other.image];
  await kept.keepImage(one.resolved);
  await kept.keepImage(other.resolved);
  await content.collect();
  assert.deepEqual(there(), new Set([...one.all, ...other.all]));
  const whole = await kept.imageOf(other.image);
  assert.ok(whole?.isWhole);
  assert.equal(whole.target.digest, one.image.published?.target.digest);
  assert.deepEqual(
    whole.others.map(({ digest }) => digest),
    [one.image.published?.own],
  );
  content.blobs.delete(digestOf('a'));
  const half = await kept.imageOf(other.image);
  assert.deepEqual([half?.manifest.digest, half?.isWhole, half?.others], [other.image.published?.own, false, []]);
});

test('a start lets go of what no image needs', async () => {
  const one = imageOf('a');
  await keepLayers('a', 'left');
  images = [one.image];
  await kept.keepImage(one.resolved);
  assert.ok(content.blobs.has(digestOf('left')));
  await new KeptContent({
    content,
    lease: () => 'lease',
    images: { list: () => images, onChange: () => changed },
    log,
  }).load();
  assert.deepEqual(there(), one.all);
});

test('a layer of a pull under way stays, and goes with it', async () => {
  const end = kept.pulling();
  await keepLayers('a');
  changed();
  await later();
  assert.ok(content.blobs.has(digestOf('a')));
  end();
  await later();
  assert.deepEqual(there(), new Set());
});

test('a manifest is found while all its layers are there, and stays for who has it open', async () => {
  const one = imageOf('a', 'b');
  images = [one.image];
  await keepLayers('a');
  await kept.keepImage(one.resolved);
  assert.equal(await kept.imageOf(one.image), undefined);
  await keepLayers('b');
  const found = await kept.imageOf(one.image);
  assert.ok(found);
  const { manifest } = found;
  assert.deepEqual([manifest.digest, digestOf(manifest.bytes)], Array(2).fill(one.image.published?.own));
  assert.deepEqual(
    manifest.layers.map(({ digest }) => digest),
    ['a', 'b'].map(digestOf),
  );
  images = [];
  changed();
  await later();
  assert.deepEqual(there(), one.all);
  found.close();
  await later();
  assert.deepEqual(there(), new Set());
  assert.equal(await kept.imageOf(one.image), undefined);
});

test('a layer is held for another image only if its own tar was found in it', async () => {
  const end = kept.pulling();
  await keepLayers('a', 'b');
  const blob = { digest: digestOf('a'), sizeBytes: 1 };
  assert.equal(await kept.holdLayer(blob, digestOf('tar of b')), false);
  assert.equal(await kept.holdLayer({ digest: digestOf('c'), sizeBytes: 1 }, digestOf('tar of c')), false);
  content.leased.clear();
  assert.equal(await kept.holdLayer(blob, digestOf('tar of a')), true);
  assert.deepEqual([...content.leased], [blob.digest]);
  end();
});

test('what cannot be kept fails nothing', async () => {
  await writeFile(join(directory, 'short'), 'x');
  const blob = { digest: digestOf('xy'), sizeBytes: 2 };
  for (const name of ['short', 'none']) await kept.keepLayer(blob, digestOf('xy'), join(directory, name));
  assert.deepEqual([there(), warnings], [new Set(), []]);
  content.failure = new Error('the disk is full');
  await keepLayers('a');
  await kept.keepImage(imageOf('a').resolved);
  assert.deepEqual(warnings, ['not kept as it was pulled', 'not kept as it was pulled']);
});
