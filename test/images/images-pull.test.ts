/** Pulls from a real registry: images of every format, progress, sharing, cancellation. */
import assert from 'node:assert/strict';
import { after, before, beforeEach, afterEach, test } from 'node:test';
import { isEngineError } from '../../src/errors/engine-error.js';
import { parseReference } from '../../src/images/reference.js';
import {
  buildImage,
  buildIndex,
  buildLayer,
  busyboxEntries,
  everyFileType,
  generatedLayer,
  pushImage,
  pushManifest,
} from '../support/image-builder.js';
import { type Line, linesOf, type PullHarness, startPullHarness } from '../support/pull-harness.js';
import { startRegistry, type TestRegistry } from '../support/registry.js';

let registry: TestRegistry;
let harness: PullHarness;

const base = buildLayer(busyboxEntries());
const types = buildLayer(everyFileType());

before(async () => {
  registry = await startRegistry();
});
after(() => registry.stop());
beforeEach(async () => {
  harness = await startPullHarness();
});
afterEach(async () => {
  assert.deepEqual(harness.errors, []);
  assert.equal(harness.layers.staged, 0, 'nothing stays staged');
  await harness.stop();
});

const statusesOf = (lines: readonly Line[], id: string): string[] => {
  const all = lines.filter((line) => line.id === id).map((line) => line.status ?? '');
  return all.filter((status, index) => status !== all[index - 1]);
};

for (const format of ['docker', 'oci'] as const) {
  test(`a ${format} image is pulled with the progress that clients know`, async () => {
    const image = buildImage({ layers: [base, types], format, config: { Cmd: ['sh'], Labels: { a: 'b' } } });
    await pushImage(registry.url, `team/${format}`, 'v1', image);
    const lines = await linesOf(await harness.start(`${registry.host}/team/${format}:v1`));
    assert.deepEqual(lines[0], { status: `Pulling from team/${format}`, id: 'v1' });
    for (const layer of image.layers) {
      const statuses = statusesOf(lines, layer.digest.slice(7, 19));
      assert.deepEqual(statuses, [
        'Pulling fs layer',
        'Downloading',
        'Verifying Checksum',
        'Download complete',
        'Extracting',
        'Pull complete',
      ]);
    }
    assert.deepEqual(lines.slice(-2), [
      { status: `Digest: ${image.digest}` },
      { status: `Status: Downloaded newer image for ${registry.host}/team/${format}:v1` },
    ]);
    const stored = harness.images.resolve(`${registry.host}/team/${format}:v1`);
    assert.equal(stored.id, image.id);
    assert.deepEqual(stored.repoDigests, [`${registry.host}/team/${format}@${image.digest}`]);
    assert.deepEqual(await harness.images.configBytes(stored), image.config);
    assert.deepEqual(harness.events, [`pull ${registry.host}/team/${format}:v1`]);
  });
}

test('a second pull finds the image up to date and fetches nothing', async () => {
  const image = buildImage({ layers: [types] });
  await pushImage(registry.url, 'again', 'latest', image);
  await linesOf(await harness.start(`${registry.host}/again`));
  assert.deepEqual(await linesOf(await harness.start(`${registry.host}/again`)), [
    { status: 'Pulling from again', id: 'latest' },
    { status: `Digest: ${image.digest}` },
    { status: `Status: Image is up to date for ${registry.host}/again:latest` },
  ]);
});

test('layers that are here already are not fetched, and a moved tag leaves the old image behind', async () => {
  const first = buildImage({ layers: [types] });
  const second = buildImage({ layers: [types, buildLayer([{ path: 'more', content: 'x' }])] });
  await pushImage(registry.url, 'moving', 'latest', first);
  await linesOf(await harness.start(`${registry.host}/moving`));
  await pushImage(registry.url, 'moving', 'latest', second);
  const lines = await linesOf(await harness.start(`${registry.host}/moving`));
  assert.deepEqual(statusesOf(lines, types.digest.slice(7, 19)), ['Already exists']);
  assert.equal(harness.images.resolve(`${registry.host}/moving`).id, second.id);
  assert.deepEqual(harness.images.get(first.id)?.repoTags, []);
});

test('an image is pulled by digest', async () => {
  const image = buildImage({ layers: [types], config: { Env: ['BY=digest'] } });
  await pushImage(registry.url, 'digest', 'latest', image);
  const reference = `${registry.host}/digest@${image.digest}`;
  const lines = await linesOf(await harness.start(reference));
  assert.deepEqual(lines[0], { status: 'Pulling from digest', id: image.digest });
  assert.equal(lines.at(-1)?.status, `Status: Downloaded newer image for ${reference}`);
  assert.deepEqual(harness.images.resolve(reference).repoTags, []);
});

test('of an index the image of the platform is taken, attestations never', async () => {
  const amd64 = buildImage({ layers: [types], format: 'oci' });
  const arm64 = buildImage({ layers: [types], format: 'oci', architecture: 'arm64', variant: 'v8' });
  const attestation = buildImage({ layers: [], format: 'oci', architecture: 'unknown', os: 'unknown' });
  const index = buildIndex([attestation, arm64, amd64], 'oci');
  for (const image of [attestation, arm64, amd64]) await pushImage(registry.url, 'multi', image.digest, image);
  await pushManifest(registry.url, 'multi', 'latest', index);
  const lines = await linesOf(await harness.start(`${registry.host}/multi`, { platform: 'linux/arm64' }));
  assert.equal(lines.at(-2)?.status, `Digest: ${index.digest}`);
  assert.equal(harness.images.resolve(`${registry.host}/multi`).id, arm64.id);
  await linesOf(await harness.start(`${registry.host}/multi`, { platform: 'linux/amd64' }));
  assert.equal(harness.images.resolve(`${registry.host}/multi`).id, amd64.id);
  await assert.rejects(harness.start(`${registry.host}/multi`, { platform: 'linux/s390x' }), {
    kind: 'not-found',
    message: 'no matching manifest for linux/s390x in the manifest list entries',
  });
});

test('a single image of another platform is pulled with a warning', async () => {
  const image = buildImage({ layers: [types], architecture: 'arm64', variant: 'v8' });
  await pushImage(registry.url, 'foreign', 'latest', image);
  const lines = await linesOf(await harness.start(`${registry.host}/foreign`, { platform: 'linux/amd64' }));
  const warning =
    `WARNING: image with reference ${registry.host}/foreign:latest was found but its platform ` +
    '(linux/arm64/v8) does not match the specified platform (linux/amd64)';
  assert.ok(lines.some(({ status }) => status === warning));
});

test('what the registry does not have is not found before the first byte', async () => {
  await assert.rejects(harness.start(`${registry.host}/nothing/here:v9`), (error) => {
    return (
      isEngineError(error, 'not-found') &&
      error.message.startsWith(`manifest for ${registry.host}/nothing/here:v9 not found: manifest unknown: `)
    );
  });
  await assert.rejects(harness.start('127.0.0.1:1/a'), { kind: 'internal', message: /connection refused/ });
});

test('zstd and plain layers are extracted like gzip ones', async () => {
  const image = buildImage({
    format: 'oci',
    layers: [buildLayer(everyFileType(), 'zstd'), buildLayer([{ path: 'plain', content: 'p' }], 'none')],
  });
  await pushImage(registry.url, 'compressions', 'latest', image);
  await linesOf(await harness.start(`${registry.host}/compressions`));
  assert.equal(harness.images.resolve(`${registry.host}/compressions`).id, image.id);
});

test('concurrent pulls share every layer, and one that leaves hurts no other', async () => {
  const layers = Array.from({ length: 6 }, (_, index) =>
    generatedLayer({ root: `d${index}`, bytes: 1 << 20, files: 50, seed: index + 1 }),
  );
  const image = buildImage({ layers });
  const other = buildImage({ layers: layers.slice(0, 4), config: { Env: ['OTHER=1'] } });
  await pushImage(registry.url, 'shared', 'latest', image);
  await pushImage(registry.url, 'shared', 'other', other);
  const leaving = await Promise.all(Array.from({ length: 5 }, () => harness.start(`${registry.host}/shared`)));
  const staying = [
    await harness.start(`${registry.host}/shared`),
    await harness.start(`${registry.host}/shared:other`),
  ];
  const results = Promise.all(staying.map(linesOf));
  for (const subscription of leaving) {
    await subscription.next();
    await subscription.return?.();
  }
  const [first = [], second = []] = await results;
  assert.match(first.at(-1)?.status ?? '', /Downloaded newer image/);
  assert.match(second.at(-1)?.status ?? '', /Downloaded newer image/);
  assert.equal(harness.layers.chainIds.length, 6);
  const late = await linesOf(await harness.start(`${registry.host}/shared`));
  assert.match(late.at(-1)?.status ?? '', /up to date/);
});

test('a pull that interests nobody any more is cancelled and leaves nothing', async () => {
  const image = buildImage({
    layers: Array.from({ length: 5 }, (_, index) =>
      generatedLayer({ root: `d${index}`, bytes: 4 << 20, files: 20, seed: index + 20 }),
    ),
  });
  await pushImage(registry.url, 'cancelled', 'latest', image);
  const [first, second, third] = [
    await harness.start(`${registry.host}/cancelled`),
    await harness.start(`${registry.host}/cancelled`),
    await harness.start(`${registry.host}/cancelled`),
  ];
  await first.next();
  await first.next();
  await second.return?.();
  await first.return?.();
  await third.next();
  await third.return?.();
  for (let tries = 0; harness.pulls.collection.children.size + harness.transfers.size > 0; tries++) {
    assert.ok(tries < 100, 'the pull ends soon');
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.deepEqual(harness.layers.chainIds, []);
  assert.equal(harness.images.list().length, 0);
  // And it can be had again.
  const lines = await linesOf(await harness.start(`${registry.host}/cancelled`));
  assert.match(lines.at(-1)?.status ?? '', /Downloaded newer image/);
});

test('progress never goes backwards nor above its total', async () => {
  const image = buildImage({
    layers: Array.from({ length: 4 }, (_, index) =>
      generatedLayer({ root: `d${index}`, bytes: 2 << 20, files: 100, seed: index + 50 }),
    ),
  });
  await pushImage(registry.url, 'monotone', 'latest', image);
  const lines = await linesOf(await harness.start(`${registry.host}/monotone`));
  for (const layer of image.layers) {
    let last = 0;
    for (const { progressDetail, status } of lines.filter(({ id }) => id === layer.digest.slice(7, 19))) {
      if (status !== 'Downloading') continue;
      assert.ok((progressDetail?.current ?? 0) >= last && (progressDetail?.current ?? 0) <= layer.blob.length);
      assert.equal(progressDetail?.total, layer.blob.length);
      last = progressDetail?.current ?? 0;
    }
    assert.equal(last, layer.blob.length);
  }
});

test('all tags of a repository are pulled one after the other', async () => {
  const tags = ['a', 'b', 'c'];
  for (const tag of tags)
    await pushImage(registry.url, 'many', tag, buildImage({ layers: [types], config: { Env: [`TAG=${tag}`] } }));
  const reference = parseReference(`${registry.host}/many`);
  const request = { reference, platform: undefined, credentials: undefined };
  const lines = await linesOf(await harness.pulls.pullAllTags(request, new AbortController().signal));
  assert.deepEqual(
    new Set(lines.filter(({ status }) => status?.startsWith('Pulling from')).map(({ id }) => id)),
    new Set(tags),
  );
  assert.deepEqual(
    new Set(harness.images.list().flatMap(({ repoTags }) => repoTags)),
    new Set(tags.map((tag) => `${registry.host}/many:${tag}`)),
  );
  const missing = { ...request, reference: parseReference(`${registry.host}/none`) };
  await assert.rejects(
    harness.pulls.pullAllTags(missing, new AbortController().signal),
    (error) => isEngineError(error, 'not-found') && /repository .*none not found/.test(error.message),
  );
});
