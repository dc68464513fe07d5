/** `docker save` and `docker load`: against the original, against skopeo, and against archives that mean harm. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import type { Socket } from 'node:net';
import { mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import type { SeededRegistry } from '../support/busybox-image.js';
import { Cleanup } from '../support/cleanup.js';
import { dockerd, whyNoDockerd } from '../support/dockerd.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { startEngineWithRegistry } from '../support/engine-with-image.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { archiveOf, beginLoad, load, ociLayout, oldArchive } from '../support/image-archives.js';
import {
  buildImage,
  buildLayer,
  busyboxEntries,
  everyFileType,
  generatedLayer,
  sha256,
} from '../support/image-builder.js';
import { pullOk } from '../support/pulls.js';
import { waitFor } from '../support/wait.js';
import { damagedArchives } from '../support/damaged-archives.js';

const cleanup = new Cleanup();
let engine: Engine;
let registry: SeededRegistry;
let dir: string;

before(async () => {
  dir = mkdtempSync(join(tmpdir(), 'save-load-'));
  cleanup.add(async () => rmSync(dir, { recursive: true, force: true }));
  ({ engine, registry } = await startEngineWithRegistry(cleanup, engined()));
});
after(() => cleanup.run());

const file = (name: string): string => join(dir, name);
const idOf = async (of: Engine, name: string): Promise<string> =>
  (await callJson<{ Id: string }>(of.socketPath, 'GET', `/images/${name}/json`)).Id;
const ids = async (): Promise<string[]> =>
  (await callJson<{ Id: string }[]>(engine.socketPath, 'GET', '/images/json?all=1')).map(({ Id }) => Id).sort();
const staged = (): string[] => readdirSync(join(engine.dir, 'data/overlay2/staging'));
const layerCount = (): number => readdirSync(join(engine.dir, 'data/overlay2/index')).length;

async function remove(of: Engine, ...names: string[]): Promise<void> {
  await engineOk(of, ['rmi', '-f', ...names]);
}

describe('the documented layout', () => {
  test('has blobs, an OCI index, and the manifests of older tools', async () => {
    await engineOk(engine, ['tag', registry.reference, 'saved:one']);
    await engineOk(engine, ['save', '-o', file('one.tar'), 'saved:one']);
    const names = execFileSync('tar', ['-tf', file('one.tar')], { encoding: 'utf8' })
      .trim()
      .split('\n');
    const content = (name: string): Buffer =>
      execFileSync('tar', ['-xOf', file('one.tar'), name], { maxBuffer: 1 << 28 });
    for (const name of names.filter((path) => /^blobs\/sha256\/./.test(path)))
      assert.equal(sha256(content(name)), `sha256:${name.slice(13)}`);
    const { id, layers } = registry.image;
    const [item] = JSON.parse(content('manifest.json').toString()) as Record<string, unknown>[];
    assert.equal(item?.['Config'], `blobs/sha256/${id.slice(7)}`);
    assert.deepEqual(item?.['RepoTags'], ['saved:one']);
    assert.deepEqual(
      item?.['Layers'],
      layers.map(({ diffId }) => `blobs/sha256/${diffId.slice(7)}`),
    );
    assert.deepEqual(JSON.parse(content('repositories').toString()), {
      saved: { one: layers.at(-1)?.diffId.slice(7) },
    });
    assert.deepEqual(JSON.parse(content('oci-layout').toString()), { imageLayoutVersion: '1.0.0' });
    const index = JSON.parse(content('index.json').toString()) as {
      manifests: { digest: string; annotations: unknown }[];
    };
    assert.deepEqual(index.manifests[0]?.annotations, {
      'io.containerd.image.name': 'docker.io/library/saved:one',
      'org.opencontainers.image.ref.name': 'one',
    });
    const manifest = JSON.parse(content(`blobs/sha256/${index.manifests[0]?.digest.slice(7)}`).toString()) as {
      config: { digest: string };
      layers: { digest: string; size: number }[];
    };
    assert.equal(manifest.config.digest, id);
    assert.deepEqual(
      manifest.layers.map(({ digest, size }) => [digest, size]),
      layers.map(({ diffId, tarSize }) => [diffId, tarSize]),
    );
    // Saved once more, not a byte differs.
    await engineOk(engine, ['save', '-o', file('again.tar'), 'saved:one']);
    assert.equal(sha256(readFileSync(file('again.tar'))), sha256(readFileSync(file('one.tar'))));
    await remove(engine, 'saved:one');
  });

  test('comes back as the same image, with its names, and runs', async () => {
    await engineOk(engine, ['tag', registry.reference, 'back:1']);
    await engineOk(engine, ['tag', registry.reference, 'back:2']);
    await engineOk(engine, ['save', '-o', file('back.tar'), 'back']);
    await remove(engine, registry.image.id);
    assert.deepEqual(await ids(), []);
    const said = await engineOk(engine, ['load', '-i', file('back.tar')]);
    assert.deepEqual(said.split('\n').sort(), ['Loaded image: back:1', 'Loaded image: back:2']);
    assert.equal(await idOf(engine, 'back:2'), registry.image.id);
    assert.equal(
      await engineOk(engine, ['run', '--rm', '--network', 'none', 'back:1', 'cat', '/etc/motd']),
      'hello from the second layer',
    );
    await pullOk(engine, registry.reference);
    await remove(engine, 'back:1', 'back:2');
  });

  test('several images share their blobs; by ID, digest and prefix they have no names', async () => {
    const container = await engineOk(engine, ['create', registry.reference, 'sh']);
    await engineOk(engine, ['commit', container, 'child:1']);
    await engineOk(engine, ['rm', container]);
    await engineOk(engine, [
      'save',
      '-o',
      file('two.tar'),
      'child:1',
      registry.image.id.slice(7, 19),
      registry.image.id,
      `${registry.host}/test/busybox@${registry.image.digest}`,
    ]);
    const manifest = JSON.parse(
      execFileSync('tar', ['-xOf', file('two.tar'), 'manifest.json'], { encoding: 'utf8' }),
    ) as { RepoTags: unknown; Parent?: string }[];
    assert.deepEqual(
      manifest.map(({ RepoTags }) => RepoTags),
      [['child:1'], null],
    );
    assert.equal(manifest[0]?.Parent, registry.image.id);
    const child = await idOf(engine, 'child:1');
    await remove(engine, 'child:1');
    await remove(engine, registry.image.id);
    const { lines, error } = await load(engine, readFileSync(file('two.tar')));
    assert.equal(error, undefined);
    assert.deepEqual(lines, [
      'Loaded image: child:1',
      `Loaded image ID: ${child}`,
      `Loaded image ID: ${registry.image.id}`,
    ]);
    assert.equal(
      (await callJson<{ Parent: string }>(engine.socketPath, 'GET', '/images/child:1/json')).Parent,
      registry.image.id,
    );
    await remove(engine, 'child:1');
    await pullOk(engine, registry.reference);
  });

  test('names that are not there, and platforms that do not fit', async () => {
    const refused = async (path: string, status: number, message: RegExp): Promise<void> => {
      const reply = await call(engine.socketPath, 'GET', path);
      assert.equal(reply.status, status, reply.text);
      assert.match(reply.text, message);
    };
    await refused('/images/nothing/get', 404, /No such image: nothing/);
    await refused('/images/nothing:1/get', 404, /reference does not exist/);
    await refused(`/images/get?names=${registry.reference}&names=no/such:tag`, 404, /reference does not exist/);
    await refused('/images/get', 400, /no image was named/);
    await refused('/images/get?names=A:b', 400, /must be lowercase/);
    const platform = encodeURIComponent(JSON.stringify({ os: 'linux', architecture: 's390x' }));
    await refused(
      `/images/get?names=${registry.reference}&platform=${platform}`,
      404,
      /does not match the specified platform \(linux\/s390x\)/,
    );
    await refused(`/images/get?names=${registry.reference}&platform=x`, 400, /failed to parse platform/);
  });

  test('events tell of save and load', async () => {
    const since = Math.floor(Date.now() / 1000);
    await engineOk(engine, ['save', '-o', file('event.tar'), registry.reference]);
    await load(engine, readFileSync(file('event.tar')));
    const seen = await engineOk(engine, [
      'events',
      '--since',
      String(since),
      '--until',
      String(Math.ceil(Date.now() / 1000) + 1),
      '--filter',
      'type=image',
      '--format',
      '{{.Action}} {{.Actor.ID}} {{.Actor.Attributes.name}}',
    ]);
    for (const action of ['save', 'load'])
      assert.match(seen, new RegExp(`^${action} ${registry.image.id} ${registry.image.id}$`, 'm'));
  });
});

describe('other tools', () => {
  test(
    'the original loads what was saved here, and the reverse, as the same image',
    { skip: whyNoDockerd() },
    async () => {
      const original = await Engine.start(
        dockerd({ args: ['--bridge', 'none', '--iptables=false', '--ip6tables=false'] }),
      );
      try {
        const image = buildImage({
          layers: [
            buildLayer(busyboxEntries()),
            buildLayer(everyFileType()),
            buildLayer([{ path: 'types/.wh.plain' }]),
          ],
          config: { Cmd: ['sh'] },
        });
        assert.equal((await load(original, archiveOf(oldArchive(image, ['both:1'])))).error, undefined);
        await engineOk(original, ['save', '-o', file('original.tar'), 'both:1']);
        assert.deepEqual((await load(engine, readFileSync(file('original.tar')))).lines, ['Loaded image: both:1']);
        assert.equal(await idOf(engine, 'both:1'), image.id);
        await engineOk(engine, ['save', '-o', file('ours.tar'), 'both:1', registry.reference]);
        await remove(original, 'both:1');
        await engineOk(original, ['load', '-i', file('ours.tar')]);
        assert.equal(await idOf(original, 'both:1'), image.id);
        assert.equal(await idOf(original, registry.reference), registry.image.id);
        await remove(engine, 'both:1');
      } finally {
        await original.close();
      }
    },
  );

  test('skopeo reads both layouts of one archive, and what it writes loads as the same image', async () => {
    await engineOk(engine, ['tag', registry.reference, 'sk:1']);
    await engineOk(engine, ['save', '-o', file('sk.tar'), 'sk:1']);
    const skopeo = (...args: string[]): Buffer =>
      execFileSync('skopeo', ['--insecure-policy', ...args], { stdio: ['ignore', 'pipe', 'pipe'] });
    const inspected = (source: string): { config: unknown } =>
      JSON.parse(skopeo('inspect', '--raw', source).toString()) as { config: unknown };
    assert.equal(
      (inspected(`oci-archive:${file('sk.tar')}`)['config'] as { digest: string }).digest,
      registry.image.id,
    );
    skopeo('copy', `docker-archive:${file('sk.tar')}`, `docker-archive:${file('sk-docker.tar')}:sk-docker:1`);
    skopeo('copy', `oci-archive:${file('sk.tar')}`, `oci-archive:${file('sk-oci.tar')}:sk-oci:1`);
    await remove(engine, registry.image.id);
    for (const name of ['sk-docker', 'sk-oci']) {
      const { lines, error } = await load(engine, readFileSync(file(`${name}.tar`)));
      assert.equal(error, undefined);
      assert.deepEqual(lines, [`Loaded image: ${name}:1`]);
      assert.equal(await idOf(engine, `${name}:1`), registry.image.id);
      await remove(engine, registry.image.id);
    }
    await pullOk(engine, registry.reference);
  });
});

describe('archives', () => {
  const small = buildImage({
    layers: [buildLayer([{ path: 'a', content: 'one' }]), buildLayer([{ path: 'b', content: 'two' }])],
    config: {},
  });

  async function loads(archive: Buffer, image = small, name = 'small:1'): Promise<void> {
    const { lines, error } = await load(engine, archive);
    assert.equal(error, undefined);
    assert.deepEqual(lines, [`Loaded image: ${name}`]);
    assert.equal(await idOf(engine, name), image.id);
    await remove(engine, name);
    assert.deepEqual(staged(), []);
  }

  test('of the old layout, with links, and one layer in several places', async () => {
    await loads(archiveOf(oldArchive(small, ['small:1'])));
    const [a, b] = small.layers;
    assert.ok(a && b);
    const twice = buildImage({ layers: [a, b, a, b, b], config: {} });
    await loads(archiveOf(oldArchive(twice, ['twice:1'])), twice, 'twice:1');
    // Names below `./`, as tar writes a directory.
    await loads(archiveOf(oldArchive(small, ['small:1']).map((entry) => ({ ...entry, path: `./${entry.path}` }))));
  });

  test('of the OCI layout, layers plain and compressed, with a name or without', async () => {
    for (const compression of ['none', 'gzip', 'zstd'] as const) {
      const image = buildImage({
        layers: [buildLayer([{ path: 'a', content: compression }], compression)],
        format: 'oci',
        config: {},
      });
      await loads(archiveOf(ociLayout(image, { 'org.opencontainers.image.ref.name': 'oci:1' })), image, 'oci:1');
      const { lines } = await load(
        engine,
        archiveOf(ociLayout(image, { 'org.opencontainers.image.ref.name': 'latest' })),
      );
      assert.deepEqual(lines, [`Loaded image ID: ${image.id}`]);
      await remove(engine, image.id);
    }
  });

  test('compressed by any tool', async () => {
    const archive = archiveOf(oldArchive(small, ['small:1']));
    await loads(gzipSync(archive));
    await loads(Buffer.concat([gzipSync(archive.subarray(0, 3000)), gzipSync(archive.subarray(3000))]));
    for (const [program, ...args] of [
      ['xz', '-c'],
      ['bzip2', '-c'],
      ['zstd', '-qc'],
    ] as const)
      await loads(execFileSync(program, args, { input: archive }));
  });

  test('progress is told unless it is not wanted, and of new layers only', async () => {
    const archive = archiveOf(oldArchive(small, ['small:1']));
    assert.deepEqual((await load(engine, archive)).layers, []);
    await remove(engine, 'small:1');
    assert.equal(new Set((await load(engine, archive, 'quiet=0')).layers).size, 2);
    const other = buildImage({ layers: [buildLayer([{ path: 'a', content: 'other' }])], config: {} });
    const said = await load(engine, archiveOf(oldArchive(other, ['small:1'])));
    assert.deepEqual(said.lines, [
      `The image small:1 already exists, renaming the old one with ID ${small.id} to empty string`,
      'Loaded image: small:1',
    ]);
    await remove(engine, small.id);
    await remove(engine, 'small:1');
  });

  test('for another platform are not loaded', async () => {
    const platform = (architecture: string): string =>
      `quiet=1&platform=${encodeURIComponent(JSON.stringify({ os: 'linux', architecture }))}`;
    const archive = archiveOf(oldArchive(small, ['small:1']));
    assert.match(
      (await load(engine, archive, platform('s390x'))).error ?? '',
      /no image in the archive is of the platform linux\/s390x/,
    );
    assert.equal((await load(engine, archive, platform('amd64'))).error, undefined);
    await remove(engine, 'small:1');
  });

  test('that are damaged or mean harm are refused and leave nothing', async () => {
    const [before, layersBefore] = [await ids(), layerCount()];
    for (const [what, archive, message] of damagedArchives(small, ['small:1'])) {
      const { error, lines } = await load(engine, archive);
      assert.match(error ?? 'no error', message, what);
      assert.deepEqual(lines, [], what);
    }
    assert.deepEqual(await ids(), before);
    assert.equal(layerCount(), layersBefore);
    assert.deepEqual(staged(), []);
  });
});

describe('an interrupted load leaves nothing', () => {
  const image = buildImage({
    layers: [
      generatedLayer({ root: 'big', bytes: 8 << 20, files: 40, seed: 1, compression: 'none' }),
      generatedLayer({ root: 'more', bytes: 8 << 20, files: 40, seed: 2, compression: 'none' }),
    ],
    config: {},
  });
  const archive = archiveOf(oldArchive(image, ['interrupted:1']));

  const begin = (bytes: number, of = archive): Socket => beginLoad(engine, of, bytes);

  test('when the client goes away', async () => {
    const layers = layerCount();
    for (const part of [0.3, 0.7, 0.99]) {
      const socket = begin(Math.floor(archive.length * part));
      await waitFor('a layer to be under way', () => staged().length > 0);
      socket.destroy();
      await waitFor('the layers to be gone', () => staged().length === 0);
    }
    assert.equal(layerCount(), layers);
    assert.equal(await attempt(engine, ['image', 'inspect', 'interrupted:1']).then(({ status }) => status), 1);
  });

  test('when clients go away just as the next layer begins', async () => {
    const small = Array.from({ length: 40 }, (_, seed) =>
      generatedLayer({ root: `s${seed}`, bytes: 100_000, files: 2, seed, compression: 'none' }),
    );
    const many = archiveOf(oldArchive(buildImage({ layers: small, config: {} }), ['interrupted:2']));
    for (let round = 0; round < 30; round++) {
      const socket = begin(Math.floor((many.length * (round + 1)) / 32), many);
      await sleep(round % 10);
      socket.destroy();
    }
    await waitFor('the layers to be gone', () => staged().length === 0);
  });

  test('when the daemon is killed', async () => {
    const layers = layerCount();
    const socket = begin(Math.floor(archive.length * 0.7));
    await waitFor('a layer to be under way', () => staged().length > 0);
    await engine.stop('SIGKILL');
    socket.destroy();
    await engine.start();
    assert.deepEqual(staged(), []);
    assert.equal(layerCount(), layers);
    writeFileSync(file('interrupted.tar'), archive);
    assert.equal(await engineOk(engine, ['load', '-qi', file('interrupted.tar')]), 'Loaded image: interrupted:1');
    await remove(engine, 'interrupted:1');
  });
});
