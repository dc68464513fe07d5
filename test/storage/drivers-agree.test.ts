/**
 * The same images on all storage drivers: equal IDs, equal files in containers, equal archives; and with snapshots of
 * the supervisor the IDs that dockerd gives them with its own store in containerd. IMAGES_COUNT=30 makes it the long
 * run.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { BtrfsDisk, noBtrfs } from '../support/btrfs-disk.js';
import { Cleanup } from '../support/cleanup.js';
import { describeTree } from '../support/describe-tree.js';
import { dockerd, whyNoDockerd } from '../support/dockerd.js';
import { engineOk } from '../support/engine-commands.js';
import { Engine, type EngineKind } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import {
  buildImage,
  buildIndex,
  buildLayer,
  type LayerEntry,
  pushImage,
  pushManifest,
  sha256,
} from '../support/image-builder.js';
import { pullOk } from '../support/pulls.js';
import { randomNumbers } from '../support/random-numbers.js';
import { startRegistry, type TestRegistry } from '../support/registry.js';
import { hasZfs, ZfsPool } from '../support/zfs-pool.js';

const COUNT = Number(process.env['IMAGES_COUNT'] ?? 2);
/** The images have these in their root; all else is made for containers. */
const OF_IMAGE = /^[a-d]( |\/)/;

interface Published {
  readonly name: string;
  readonly configDigest: string;
  /** The digest of the index or manifest that the name stands for. */
  readonly digest: string;
  /** The digests of all that the registry has of it, without the platform that is not pulled. */
  readonly blobs: readonly string[];
}
interface Seen {
  readonly id: string;
  readonly digests: readonly string[];
  readonly files: readonly string[];
}

const cleanup = new Cleanup();
const temp = mkdtempSync(join(tmpdir(), 'drivers-agree-'));
cleanup.add(async () => rmSync(temp, { recursive: true, force: true }));
const images: Published[] = [];
/** The files that the first driver shows, by the names of the images. */
const trees = new Map<string, readonly string[]>();
after(() => cleanup.run());

before(async () => {
  const registry = await startRegistry();
  cleanup.add(() => registry.stop());
  for (let seed = 1; seed <= COUNT; seed++) images.push(await publish(seed, registry));
});

/** Every third image is in an index, beside one of another platform. */
async function publish(seed: number, { host, url }: TestRegistry): Promise<Published> {
  const compression = (['gzip', 'zstd', 'none'] as const)[seed % 3] ?? 'gzip';
  const layers = layersOf(seed).map((entries) => buildLayer(entries, compression));
  const format = compression === 'gzip' && seed % 2 === 1 ? 'docker' : 'oci';
  const image = buildImage({ layers, format, config: { Labels: { seed: String(seed) } } });
  const repository = `image-${seed}`;
  await pushImage(url, repository, '1', image);
  const named = { name: `${host}/${repository}:1`, configDigest: image.id };
  const blobs = [image.digest, image.id, ...layers.map((layer) => layer.digest)];
  if (seed % 3 !== 0) return { ...named, digest: image.digest, blobs };
  const other = buildImage({ layers, format, architecture: 'arm', variant: 'v7' });
  await pushImage(url, repository, 'arm', other);
  const index = buildIndex([other, image], format);
  await pushManifest(url, repository, '1', index);
  return { ...named, digest: index.digest, blobs: [...blobs, index.digest] };
}

/**
 * Layers that change what is below them. Hard links to files of lower layers, and files in place of directories, are
 * left out: dockerd with its store in containerd cannot unpack them.
 */
function layersOf(seed: number): LayerEntry[][] {
  const random = randomNumbers(seed);
  const content = (): Buffer => Buffer.from(Uint8Array.from({ length: 1 + random(9_000) }, () => random(256)));
  const names = ['l', 'm', 'n', 'o'];
  const file = (path: string): LayerEntry => ({ path, content: content(), mode: 0o600 | random(64), uid: random(3) });
  const directory = (path: string): LayerEntry => ({ path: `${path}/`, type: 'directory', mode: 0o700 | random(64) });
  const linked = file('b/k');
  const gone = names[random(names.length)] ?? 'l';
  return [
    [
      ...['a', 'b', 'b/c'].flatMap((at) => [directory(at), ...names.map((name) => file(`${at}/${name}`))]),
      linked,
      { path: 'a/link', type: 'symlink', target: names[random(names.length)] ?? '' },
      { ...linked, path: 'a/same', type: 'link', target: 'b/k' },
      { ...file('a/setuid'), mode: 0o4755, gid: random(3) },
    ],
    [{ path: `a/.wh.${gone}` }, file(`b/${gone}`), directory('b/c'), { path: 'b/c/.wh..wh..opq' }, file('b/c/new')],
    [directory('d'), file(`d/${gone}`), { ...file(`a/${gone}`), mtime: 1_600_000_000 + random(1_000_000) }],
  ];
}

function described(root: string): string[] {
  return describeTree(root).filter((line) => OF_IMAGE.test(line));
}

/** Starts an engine, pulls all images and looks at them. */
async function withEngine<T>(kind: EngineKind, look: (engine: Engine) => Promise<T>): Promise<T> {
  const engine = await Engine.start(kind);
  try {
    for (const { name } of images) await pullOk(engine, name);
    return await look(engine);
  } finally {
    await engine.close();
  }
}

async function seen(engine: Engine, { name }: Published): Promise<Seen> {
  type Inspected = { readonly Id: string; readonly RepoDigests: readonly string[] };
  const image = await callJson<Inspected>(engine.socketPath, 'GET', `/images/${name}/json`);
  const container = await engineOk(engine, ['create', name, '/none']);
  const directory = join(temp, container);
  mkdirSync(directory);
  const { body } = await call(engine.socketPath, 'GET', `/containers/${container}/export`);
  execFileSync('tar', ['--xattrs', '--xattrs-include=*', '-xpf', '-', '-C', directory], { input: body });
  await engineOk(engine, ['rm', container]);
  const files = described(directory);
  rmSync(directory, { recursive: true });
  if (!trees.has(name)) trees.set(name, files);
  return { id: image.Id, digests: image.RepoDigests, files };
}

async function eachSeen(engine: Engine): Promise<Seen[]> {
  const all: Seen[] = [];
  for (const image of images) all.push(await seen(engine, image));
  return all;
}

/** An archive of all images. */
async function archived(engine: Engine): Promise<Buffer> {
  const query = images.map(({ name }) => `names=${encodeURIComponent(name)}`).join('&');
  return (await call(engine.socketPath, 'GET', `/images/get?${query}`)).body;
}

/** Looks at an archive whose blobs are those of the registry. */
function checkArchive(archive: Buffer): void {
  const names = execFileSync('tar', ['-t'], { input: archive, encoding: 'utf8' }).split('\n');
  const blobs = names.flatMap((name) => /^blobs\/sha256\/(\w+)$/.exec(name)?.[1] ?? []);
  const all = new Set(images.flatMap((image) => image.blobs.map((digest) => digest.slice('sha256:'.length))));
  assert.deepEqual(blobs.sort(), [...all].sort());
  const index = execFileSync('tar', ['-xO', 'index.json'], { input: archive, encoding: 'utf8' });
  const { manifests } = JSON.parse(index) as { readonly manifests: readonly { readonly digest: string }[] };
  assert.deepEqual(manifests.map(({ digest }) => digest).sort(), images.map(({ digest }) => digest).sort());
}

/** Images as the registry has them, with the IDs that they are to have. */
const expected = (idOf: (image: Published) => string): Seen[] =>
  images.map((image) => ({
    id: idOf(image),
    digests: [`${image.name.replace(/:1$/, '')}@${image.digest}`],
    files: trees.get(image.name) ?? [],
  }));
const byConfig = ({ configDigest }: Published): string => configDigest;
const byManifest = ({ digest }: Published): string => digest;

/** The control groups of tests have names that systemd, where it runs, would not take. */
const withStore = (...args: readonly string[]): EngineKind =>
  engined({ args: [...args, '--exec-opt=native.cgroupdriver=cgroupfs'] });

test('storage drivers have the same images, files and archives', async (t) => {
  const archives = new Map<string, string>();
  const check = async (driver: string, ...args: string[]): Promise<void> => {
    await withEngine(withStore('--storage-driver', driver, ...args), async (engine) => {
      const found = await eachSeen(engine);
      assert.ok(found.every(({ files }) => files.length > 5));
      assert.deepEqual(found, expected(byConfig), driver);
      archives.set(driver, sha256(await archived(engine)));
    });
  };
  await check('overlay2');
  await check('fuse-overlayfs');
  const reason = noBtrfs();
  if (reason !== false) t.diagnostic(reason);
  else {
    const disk = new BtrfsDisk();
    try {
      await check('btrfs', '--data-root', join(disk.path, 'data'));
    } finally {
      disk.remove();
    }
  }
  if (!hasZfs()) t.diagnostic('no ZFS: npm run test:vm -- --native zfs-agrees');
  else {
    const pool = new ZfsPool('agree');
    try {
      await check('zfs', '--data-root', join(pool.path, 'data'));
    } finally {
      pool.remove();
    }
  }
  assert.equal(new Set(archives.values()).size, 1, JSON.stringify([...archives]));
});

test('with snapshots of the supervisor the IDs are those of manifests', async () => {
  await withEngine(withStore('--feature', 'supervisor-snapshotter'), async (engine) => {
    assert.deepEqual(await eachSeen(engine), expected(byManifest));
    checkArchive(await archived(engine));
  });
});

test('dockerd has these with its store in containerd', { skip: whyNoDockerd() }, async () => {
  await withEngine(dockerd({ args: ['--feature', 'containerd-snapshotter=true'] }), async (engine) => {
    assert.deepEqual(await eachSeen(engine), expected(byManifest));
    checkArchive(await archived(engine));
  });
});
