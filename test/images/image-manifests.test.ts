/**
 * Inspect and list tell of the manifests that an image came with (Engine API 1.47 and later), before and after a
 * restart.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { startSeededRegistry, type SeededRegistry } from '../support/busybox-image.js';
import { Cleanup } from '../support/cleanup.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { archiveOf, load, oldArchive, ociLayout } from '../support/image-archives.js';
import {
  type BuiltImage,
  buildImage,
  buildIndex,
  buildLayer,
  pushImage,
  pushManifest,
} from '../support/image-builder.js';
import { pullOk } from '../support/pulls.js';

type Json = Record<string, unknown>;

const cleanup = new Cleanup();
let engine: Engine;
let registry: SeededRegistry;
const layers = [buildLayer([{ path: 'f', content: 'x'.repeat(5000) }])];
const amd64 = buildImage({ layers, format: 'oci' });
const arm = buildImage({ layers, format: 'oci', architecture: 'arm', variant: 'v7' });
const attestation = {
  mediaType: 'application/vnd.oci.image.manifest.v1+json',
  size: arm.manifest.length,
  digest: arm.digest,
  platform: { architecture: 'unknown', os: 'unknown' },
  annotations: { 'vnd.docker.reference.type': 'attestation-manifest', 'vnd.docker.reference.digest': amd64.digest },
};
const index = buildIndex([arm, amd64], 'oci', [attestation]);
const target = { mediaType: index.mediaType, digest: index.digest, size: index.manifest.length };

before(async () => {
  registry = await startSeededRegistry();
  cleanup.add(() => registry.stop());
  engine = await Engine.start(engined());
  cleanup.add(() => engine.close());
  for (const one of [amd64, arm]) await pushImage(registry.url, 'multi', one.platform.architecture, one);
  await pushManifest(registry.url, 'multi', 'latest', index);
});
after(() => cleanup.run());

const inspect = (version: string, name: string, query = ''): Promise<Json> =>
  callJson<Json>(engine.socketPath, 'GET', `/v${version}/images/${name}/json${query}`);
const list = (version: string, query = ''): Promise<Json[]> =>
  callJson<Json[]>(engine.socketPath, 'GET', `/v${version}/images/json${query}`);
const described = (one: BuiltImage): Json => ({
  mediaType: one.mediaType,
  digest: one.digest,
  size: one.manifest.length,
  platform: one.platform,
});

test('of an index: which manifest is here, for whom, and what the others are', async () => {
  const name = `${registry.host}/multi:latest`;
  await pullOk(engine, name);
  const id = await engineOk(engine, ['create', name, '/f']);
  const check = async (): Promise<void> => {
    const image = await inspect('1.51', name, '?manifests=1');
    assert.equal(image['Id'], amd64.id);
    assert.deepEqual(image['Descriptor'], target);
    const size = image['Size'] as number;
    const none = { Total: 0, Content: 0 };
    const own = { Total: amd64.config.length + size, Content: amd64.config.length };
    const expected = [
      {
        ID: arm.digest,
        Descriptor: described(arm),
        Available: false,
        Size: none,
        Kind: 'image',
        ImageData: { Platform: arm.platform, Containers: [], Size: { Unpacked: 0 } },
      },
      {
        ID: amd64.digest,
        Descriptor: described(amd64),
        Available: true,
        Size: own,
        Kind: 'image',
        ImageData: { Platform: amd64.platform, Containers: [id], Size: { Unpacked: size } },
      },
      {
        ID: arm.digest,
        Descriptor: attestation,
        Available: false,
        Size: none,
        Kind: 'attestation',
        AttestationData: { For: amd64.digest },
      },
    ];
    assert.deepEqual(image['Manifests'], expected);
    const [listed] = await list('1.51', '?manifests=1');
    assert.deepEqual([listed?.['Descriptor'], listed?.['Manifests']], [target, expected]);
  };
  await check();
  await engine.stop('SIGKILL');
  await engine.start();
  await check();
  assert.match(await engineOk(engine, ['image', 'ls', '--tree']), /linux\/amd64/);
});

test('only in the versions that have them, and only when they are asked for', async () => {
  const name = `${registry.host}/multi:latest`;
  const keys = async (from: Promise<Json>): Promise<string[]> =>
    Object.keys(await from).filter((key) => ['Descriptor', 'Manifests'].includes(key));
  const first = async (version: string, query?: string): Promise<Json> => (await list(version, query))[0] ?? {};
  assert.deepEqual(await keys(inspect('1.51', name)), ['Descriptor']);
  assert.deepEqual(await keys(inspect('1.47', name, '?manifests=1')), []);
  assert.deepEqual(await keys(first('1.48')), ['Descriptor']);
  assert.deepEqual(await keys(first('1.47', '?manifests=1')), ['Manifests']);
  assert.deepEqual(await keys(first('1.46', '?manifests=1')), []);
});

test('of two images of one index, each has its own share', async () => {
  const name = `${registry.host}/multi:latest`;
  await engineOk(engine, ['pull', '-q', '--platform', 'linux/arm/v7', name]);
  for (const one of [name, amd64.id]) {
    const items = (await inspect('1.51', one, '?manifests=1'))['Manifests'] as {
      ID: string;
      Kind: string;
      Available: boolean;
      Size: { Content: number };
      ImageData?: { Containers: string[] };
    }[];
    assert.deepEqual(
      items.map(({ ID, Kind, Available, Size, ImageData }) => [
        ID,
        Kind,
        Available,
        Size.Content,
        ImageData?.Containers.length,
      ]),
      [
        [arm.digest, 'image', true, arm.config.length, 0],
        [amd64.digest, 'image', true, amd64.config.length, 1],
        [arm.digest, 'attestation', false, 0, undefined],
      ],
    );
  }
  await engineOk(engine, ['pull', '-q', '--platform', 'linux/amd64', name]);
  await engineOk(engine, ['rmi', '-f', arm.id]);
});

test('a loaded image has the descriptor of its entry in the archive, until it is pushed or pulled', async () => {
  const one = buildImage({ layers, format: 'oci', config: { Env: ['LOADED=1'] } });
  const descriptorOf = async (name: string): Promise<{ mediaType?: string; digest?: string } | undefined> =>
    (await inspect('1.51', name))['Descriptor'] as object | undefined;

  // An index in the archive, as buildx writes it.
  const both = buildIndex([arm, one], 'oci', [attestation]);
  const top = { mediaType: both.mediaType, digest: both.digest, size: both.manifest.length };
  const layout = ociLayout(one, {}).filter(({ path }) => path !== 'index.json');
  layout.push(
    { path: `blobs/sha256/${both.digest.slice(7)}`, content: both.manifest },
    {
      path: 'index.json',
      content: JSON.stringify({
        schemaVersion: 2,
        manifests: [{ ...top, annotations: { 'io.containerd.image.name': 'docker.io/library/loaded:1' } }],
      }),
    },
  );
  assert.equal((await load(engine, archiveOf(layout))).error, undefined);
  assert.deepEqual(await descriptorOf('loaded:1'), top);
  const items = (await inspect('1.51', 'loaded:1', '?manifests=1'))['Manifests'] as Json[];
  assert.deepEqual(
    items.map(({ ID, Available }) => [ID, Available]),
    [
      [arm.digest, false],
      [one.digest, true],
      [arm.digest, false],
    ],
  );

  // The same with a manifest.json for older tools.
  await engineOk(engine, ['rmi', 'loaded:1']);
  const manifestJson = [
    {
      Config: `blobs/sha256/${one.id.slice(7)}`,
      RepoTags: ['loaded:1'],
      Layers: one.layers.map(({ digest }) => `blobs/sha256/${digest.slice(7)}`),
    },
  ];
  assert.equal(
    (await load(engine, archiveOf([...layout, { path: 'manifest.json', content: JSON.stringify(manifestJson) }])))
      .error,
    undefined,
  );
  assert.deepEqual(await descriptorOf('loaded:1'), top);

  // Save writes manifest.json beside an index here.
  const { body: saved } = await call(engine.socketPath, 'GET', '/images/loaded:1/get');
  await engineOk(engine, ['rmi', 'loaded:1']);
  assert.equal((await load(engine, saved)).error, undefined);
  assert.equal((await descriptorOf('loaded:1'))?.mediaType, 'application/vnd.oci.image.manifest.v1+json');

  const name = `${registry.host}/loaded:1`;
  await engineOk(engine, ['tag', 'loaded:1', name]);
  await engineOk(engine, ['push', '-q', name]);
  const pushed = (await inspect('1.51', name))['RepoDigests'] as string[];
  assert.equal((await descriptorOf(name))?.digest, pushed[0]?.split('@')[1]);
  assert.equal((await load(engine, saved)).error, undefined);
  assert.equal((await descriptorOf(name))?.digest, pushed[0]?.split('@')[1], 'an archive does not take its place');
  await engineOk(engine, ['rmi', '-f', one.id]);

  // The old layout has no manifests; neither has an import.
  assert.equal((await load(engine, archiveOf(oldArchive(one, ['loaded:old'])))).error, undefined);
  assert.equal(await descriptorOf('loaded:old'), undefined);
  await engineOk(engine, ['rmi', 'loaded:old']);
});

test('an image that no registry had has none until it is pushed', async () => {
  await engineOk(engine, ['pull', '-q', registry.reference]);
  await engineOk(engine, ['create', '--name', 'made', registry.reference, 'sh']);
  const name = `${registry.host}/made:1`;
  await engineOk(engine, ['commit', 'made', name]);
  const before = await inspect('1.51', name, '?manifests=1');
  assert.deepEqual([before['Descriptor'], before['Manifests']], [undefined, []]);
  const pushed = /digest: (sha256:\w+) size: (\d+)/.exec(await engineOk(engine, ['push', name]));
  const after = await inspect('1.51', name, '?manifests=1');
  const descriptor = {
    mediaType: 'application/vnd.docker.distribution.manifest.v2+json',
    digest: pushed?.[1],
    size: Number(pushed?.[2]),
  };
  assert.deepEqual(after['Descriptor'], descriptor);
  assert.deepEqual(
    (after['Manifests'] as Json[]).map(({ ID, Available }) => [ID, Available]),
    [[pushed?.[1], true]],
  );
  await engineOk(engine, ['rm', 'made']);
});
