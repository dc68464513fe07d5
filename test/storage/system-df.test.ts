/** `system df` against du(1): whatever is below the data root, the sums agree. */
import assert from 'node:assert/strict';
import { appendFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { assertWithin, diskBytes } from '../support/disk.js';
import type { Engine } from '../support/engine.js';
import { startEngineWithImage } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { archiveOf, load, oldArchive } from '../support/image-archives.js';
import { buildImage, generatedLayer } from '../support/image-builder.js';
import { waitFor } from '../support/wait.js';

interface Usage {
  readonly LayersSize: number;
  readonly Images: { Id: string; Size: number; SharedSize: number; Containers: number }[] | null;
  readonly Containers: { Id: string; SizeRw?: number; SizeRootFs: number }[] | null;
  readonly Volumes: { Name: string; UsageData: { Size: number; RefCount: number } }[] | null;
  readonly BuildCache: unknown[] | null;
  readonly DataRoot: { Path: string; Size: number; Kinds: { Kind: string; Count: number; Size: number }[] };
}

const cleanup = new Cleanup();
let engine: Engine;
let busybox: string;
let dataRoot: string;

before(async () => {
  ({ engine, image: busybox } = await startEngineWithImage(cleanup, engined()));
  dataRoot = join(engine.dir, 'data');
});
after(() => cleanup.run());

const usage = (query = ''): Promise<Usage> => callJson<Usage>(engine.socketPath, 'GET', `/v1.51/system/df${query}`);

/** Clients add up these: images, containers, volumes. */
function clientSum({ LayersSize, Containers, Volumes }: Usage): number {
  return (
    LayersSize +
    (Containers ?? []).reduce((sum, { SizeRw = 0 }) => sum + SizeRw, 0) +
    (Volumes ?? []).reduce((sum, { UsageData }) => sum + UsageData.Size, 0)
  );
}

test('the whole agrees with du, and so do the sums of clients, with images of large and of small files', async () => {
  const image = buildImage({
    layers: [
      generatedLayer({ root: 'large', bytes: 64 << 20, files: 8, seed: 1, compression: 'none' }),
      generatedLayer({ root: 'small', bytes: 3 << 20, files: 5000, seed: 2, compression: 'none' }),
    ],
    config: {},
  });
  assert.equal((await load(engine, archiveOf(oldArchive(image, ['generated:1'])))).error, undefined);
  await engineOk(engine, ['volume', 'create', 'data']);
  // Its bytes are not on this disk.
  await engineOk(engine, ['volume', 'create', '-o', 'type=tmpfs', '-o', 'device=tmpfs', 'elsewhere']);
  const script =
    'for i in 1 2 3 4 5; do head -c 2000000 /dev/urandom >/volume/$i; ' +
    'head -c 1000000 /dev/urandom >/file$i; done; ln /file1 /hard; head -c 3000000 /dev/urandom | base64';
  await engineOk(engine, [
    'run',
    '--name',
    'writer',
    '--network',
    'none',
    '-v',
    'data:/volume',
    busybox,
    'sh',
    '-c',
    script,
  ]);
  const measured = await usage();
  const du = diskBytes(dataRoot);
  assertWithin(measured.DataRoot.Size, du, 0.01, 'the whole');
  // The reserve for a full disk belongs to nobody.
  const reserved = diskBytes(join(dataRoot, 'reserve'));
  assert.ok(reserved >= 1 << 20, String(reserved));
  assertWithin(clientSum(measured), du - reserved, 0.01, 'what clients add up');
  const [container] = measured.Containers ?? [];
  assertWithin(container?.SizeRw ?? 0, 5_000_000 + 7_800_000, 0.1, 'the container with its log');
  assertWithin(measured.Volumes?.[0]?.UsageData.Size ?? 0, 10_000_000, 0.01, 'the volume');
  assert.deepEqual(
    measured.Volumes?.map(({ Name, UsageData }) => [Name, UsageData.RefCount]),
    [['data', 1]],
  );
  const small = measured.Images?.find(({ Id }) => Id === image.id);
  assertWithin(small?.Size ?? 0, (64 << 20) + 5000 * 4096, 0.03, 'the image, in blocks');
  assert.deepEqual(measured.Images?.map(({ Containers }) => Containers).sort(), [0, 1]);
});

test('images that share layers tell how much', async () => {
  await engineOk(engine, ['commit', 'writer', 'child:1']);
  const { Images } = await usage('?type=image');
  const known = await engineOk(engine, ['image', 'inspect', '-f', '{{.Id}}', busybox]);
  const base = Images?.find(({ Id }) => Id === known);
  const child = Images?.find(
    ({ Id }) => Id !== known && Id !== undefined && (Images.find((one) => one.Id === Id)?.SharedSize ?? 0) > 0,
  );
  assert.ok(base && child);
  assert.equal(base.SharedSize, base.Size);
  assert.equal(child.SharedSize, base.Size);
  assertWithin(child.Size - child.SharedSize, 5_000_000, 0.02, 'what the child has alone');
  await engineOk(engine, ['rmi', 'child:1']);
});

test('kinds that were not asked for are null, unknown ones are refused', async () => {
  const only = await usage('?type=volume&type=build-cache');
  assert.deepEqual([only.Images, only.Containers, only.BuildCache, only.LayersSize], [null, null, [], 0]);
  assert.equal(only.Volumes?.length, 1);
  const reply = await call(engine.socketPath, 'GET', '/v1.51/system/df?type=everything');
  assert.deepEqual([reply.status, reply.text.trim()], [400, '{"message":"unknown object type: everything"}']);
  const old = await callJson<Record<string, unknown>>(engine.socketPath, 'GET', '/v1.41/system/df?type=everything');
  assert.equal('BuilderSize' in old, false);
});

test('the client shows it, short and long', async () => {
  const short = await engineOk(engine, ['system', 'df']);
  for (const row of [
    /^Images +2 +1 +\S+ +\S+/m,
    /^Containers +1 +0 +\S+ +\S+ \(100%\)/m,
    /^Local Volumes +1 +1 +10\.\d+MB/m,
    /^Build Cache +0 +0 +0B/m,
  ])
    assert.match(short, row);
  const long = await engineOk(engine, ['system', 'df', '-v']);
  assert.match(long, /^generated +1 +\S+ +\d+ \w+ ago +[\d.]+MB +0B +[\d.]+MB +0/m);
  assert.match(long, /^data +1 +10\.\d+MB/m);
});

test('many at once share measurements', async () => {
  // The figures of two measurements differ, because the volume grows all the time.
  const growing = join(dataRoot, 'volumes/data/_data/growing');
  const timer = setInterval(() => appendFileSync(growing, Buffer.alloc(4096)), 1);
  try {
    const all = await Promise.all(Array.from({ length: 20 }, () => usage()));
    const measurements = new Set(all.map(({ DataRoot }) => DataRoot.Size)).size;
    // A client that comes when the first measurement has ended gets another one.
    assert.ok(measurements <= 5, `${measurements} measurements for 20 clients`);
  } finally {
    clearInterval(timer);
    rmSync(growing, { force: true });
  }
});

test('what prunes tell agrees with du as soon as they have told it', async () => {
  await waitFor(
    'what was removed before to be deleted',
    async () => !(await usage()).DataRoot.Kinds.some(({ Kind }) => Kind === 'trash'),
  );
  const full = diskBytes(dataRoot);
  const containers = await callJson<{ SpaceReclaimed: number }>(engine.socketPath, 'POST', '/containers/prune');
  const without = diskBytes(dataRoot);
  assertWithin(containers.SpaceReclaimed, full - without, 0.01, 'containers');
  const volumes = await callJson<{ SpaceReclaimed: number }>(
    engine.socketPath,
    'POST',
    `/volumes/prune?filters=${encodeURIComponent('{"all":["true"]}')}`,
  );
  const before = diskBytes(dataRoot);
  assertWithin(volumes.SpaceReclaimed, without - before, 0.01, 'volumes');
  const { SpaceReclaimed } = await callJson<{ SpaceReclaimed: number }>(
    engine.socketPath,
    'POST',
    `/images/prune?filters=${encodeURIComponent('{"dangling":["false"]}')}`,
  );
  assertWithin(SpaceReclaimed, before - diskBytes(dataRoot), 0.01, 'images');
});
