/**
 * Archives that are made to cost much, given to `load` and to `import`: each is taken or refused while other clients
 * are served, and in bounded memory. Layers that are made to write where they must not.
 */
import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { after, afterEach, before, beforeEach, describe, test } from 'node:test';
import { gzipSync } from 'node:zlib';
import { Cleanup } from '../support/cleanup.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { load, oldArchive } from '../support/image-archives.js';
import {
  buildImage,
  buildLayer,
  busyboxEntries,
  layerOfTar,
  type LayerEntry,
  pushImage,
  sha256,
  tarOf,
} from '../support/image-builder.js';
import { pingWhile } from '../support/ping.js';
import { pull } from '../support/pulls.js';
import { startRegistry, type TestRegistry } from '../support/registry.js';

const MIB = 1 << 20;
/** A daemon may hold so much after all of this together; single archives below unpack to more. */
const MAX_PEAK_BYTES = 900 * MIB;

const cleanup = new Cleanup();
const image = buildImage({ layers: [buildLayer(busyboxEntries())] });
let engine: Engine;

before(async () => {
  // The pauses between attempts grow by seconds: one attempt is enough to see a failure.
  engine = await Engine.start(engined({ args: ['--max-download-attempts', '1'] }));
  cleanup.add(() => engine.close());
});
after(() => cleanup.run());

const many = <T>(count: number, make: (index: number) => T): T[] => Array.from({ length: count }, (_, i) => make(i));
const files = (count: number, prefix: string): LayerEntry[] =>
  many(count, (i) => ({ path: `${prefix}${i}`, content: '' }));
const ofLayer = (...entries: readonly LayerEntry[]): Buffer =>
  tarOf(oldArchive(buildImage({ layers: [buildLayer(entries)] }), ['hostile:1']));
const manifest = (items: readonly unknown[], ...others: readonly LayerEntry[]): Buffer =>
  tarOf([...others, { path: 'manifest.json', content: JSON.stringify(items) }]);

/** One configuration, nearly as large as one may be, under its digest, named by every image of the manifest. */
function sameConfiguration(): Buffer {
  const content = JSON.stringify({ os: 'linux', rootfs: { diff_ids: [] }, comment: 'x'.repeat(2 * MIB - 1000) });
  const path = `blobs/sha256/${sha256(content).slice(7)}`;
  return manifest(
    many(5000, () => ({ Config: path, RepoTags: [], Layers: ['none'] })),
    { path, content },
  );
}

/** An index whose entries name one index, whose entries name one index again. */
function indexesOfIndexes(): Buffer {
  const blob = (document: object): LayerEntry & { readonly content: string } => {
    const content = JSON.stringify(document);
    return { path: `blobs/sha256/${sha256(content).slice(7)}`, content };
  };
  const indexOf = ({ content }: { readonly content: string }): object => ({
    schemaVersion: 2,
    mediaType: 'application/vnd.oci.image.index.v1+json',
    manifests: many(1000, () => ({
      mediaType: 'application/vnd.oci.image.index.v1+json',
      digest: sha256(content),
      size: content.length,
    })),
  });
  const first = blob({ schemaVersion: 2, mediaType: 'application/vnd.oci.image.index.v1+json', manifests: [] });
  const second = blob(indexOf(first));
  const index = { path: 'index.json', content: JSON.stringify(indexOf(second)) };
  return tarOf([...oldArchive(image, ['hostile:2']), first, second, index]);
}

/** A frame of zstd with this head, and blocks that say: 128 KiB of zeros. */
function zstdOf(head: readonly number[], blocks: number): Buffer {
  const size = ((128 << 10) << 3) | (1 << 1);
  const block = Buffer.from([size & 255, (size >> 8) & 255, size >> 16, 0]);
  return Buffer.concat([Buffer.from([0x28, 0xb5, 0x2f, 0xfd, ...head]), ...many(blocks, () => block)]);
}

/** An empty file without the end of the archive. */
const ENTRY = tarOf(files(1, 'f')).subarray(0, 512);

/** Each archive with what `load` says in the end. */
const ARCHIVES: Readonly<Record<string, readonly [make: () => Buffer, reply: RegExp]>> = {
  // One entry again and again, which is made ten times as fast as so many names.
  'more files than an archive may have': [() => Buffer.concat(many(100_001, () => ENTRY)), /more than 100000 entries/],
  'many files that no image needs': [() => tarOf(files(20_000, 'f')), /holds no images/],
  'more images than an archive may have': [
    () => manifest(many(20_000, (i) => ({ Config: `c${i}`, RepoTags: [], Layers: [] }))),
    /manifest.json in the archive has more than 10000 images/,
  ],
  'more names than an archive may have': [
    () =>
      tarOf(
        oldArchive(
          image,
          many(10_001, (i) => `hostile:t${i}`),
        ),
      ),
    /manifest.json in the archive has more than 10000 names/,
  ],
  'many names': [
    () =>
      tarOf(
        oldArchive(
          image,
          many(10_000, (i) => `hostile:t${i}`),
        ),
      ),
    /Loaded image: hostile:t9999/,
  ],
  'one large configuration for all images': [sameConfiguration, /layers length mismatch: expected 0, got 1/],
  'indexes that multiply': [indexesOfIndexes, /the documents of the archive name more than 200000 files/],
  'very many layers that are not there': [
    () =>
      manifest(
        many(60, (image) => ({ Config: 'c', Layers: many(100, (at) => `${image}-${at}`) })),
        {
          path: 'c',
          content: JSON.stringify({ os: 'linux', rootfs: { diff_ids: many(100, (at) => sha256(`${at}`)) } }),
        },
      ),
    /the archive lacks more than 5000 of the layers that it names/,
  ],
  'a manifest of objects': [
    () => tarOf([{ path: 'manifest.json', content: `[${'{},'.repeat(2 * MIB)}{}]` }]),
    /invalid JSON: more than 100000 members in one array or object/,
  ],
  'a manifest of brackets': [
    () => tarOf([{ path: 'manifest.json', content: '['.repeat(7 * MIB) }]),
    /exceeded max depth of 64/,
  ],
  'a manifest that is too large': [
    () => tarOf([{ path: 'manifest.json', content: `["${'x'.repeat(20 * MIB)}"]` }]),
    /holds no images/,
  ],
  // In several members, which are made sooner than one.
  'a gigabyte of zeros': [
    () => Buffer.concat(Array<Buffer>(20).fill(gzipSync(Buffer.alloc(50 * MIB), { level: 1 }))),
    /holds no images/,
  ],
  'zstd that says nothing but zeros': [() => zstdOf([0x00, 0x58], 400), /holds no images|decompress/],
  'zstd that asks for a window of terabytes': [() => zstdOf([0x00, 0xf8], 1), /decompress/],
  'zstd that announces exabytes': [() => zstdOf([0xe0, ...many(8, () => 255)], 1), /decompress/],
  'many whiteouts': [() => ofLayer(...files(20_000, 'd/.wh.')), /Loaded image/],
  'attributes without end': [
    () => ofLayer(...many(50, (i) => ({ path: `p${i}`, content: '', xattrs: { 'user.x': 'v'.repeat(MIB) } }))),
    /./,
  ],
  'links in a row': [
    () =>
      ofLayer(...many(10_000, (i) => ({ path: `l${i}`, type: 'symlink' as const, target: `l${i + 1}` })), {
        path: 'l0/x',
        content: '',
      }),
    /./,
  ],
};

/** `import` reads no documents, so it only makes files of the others. */
const IMPORTED = /^(many files|zstd|many whiteouts|attributes|links)/;

for (const [name, [make, reply]] of Object.entries(ARCHIVES)) {
  // Some take a second to make, and both tests give the same bytes.
  let archive: Buffer = Buffer.alloc(0);

  test(`load: ${name}`, async () => {
    archive = make();
    const { lines, error } = await pingWhile(engine, () => load(engine, archive));
    assert.match(error ?? lines.join('\n'), reply);
  });

  if (!IMPORTED.test(name)) continue;
  test(`import: ${name}`, async () => {
    const body = archive;
    archive = Buffer.alloc(0);
    assert.ok(body.length > 0, 'the test before this one makes the archive');
    const headers = { 'Content-Type': 'application/x-tar' };
    const path = '/images/create?fromSrc=-&repo=hostile&tag=imported';
    const { status } = await pingWhile(engine, () => call(engine.socketPath, 'POST', path, { body, headers }));
    assert.ok(status === 200 || (status >= 400 && status < 500), String(status));
  });
}

describe('layers that mean harm', () => {
  const outside = `/tmp/engined-escape-${process.pid}`;
  let hostile: TestRegistry;
  before(async () => {
    hostile = await startRegistry();
    cleanup.add(() => hostile.stop());
  });

  /**
   * Pushes the entries as an image and pulls it. Success or refusal is told by the caller; escapes are never allowed.
   */
  async function outcome(entries: readonly LayerEntry[]): Promise<string | undefined> {
    const name = `${hostile.host}/hostile/layer:1`;
    await pushImage(hostile.url, 'hostile/layer', '1', buildImage({ layers: [buildLayer(entries)] }));
    const { error } = await pull(engine, name);
    assert.equal(existsSync(outside), false, 'nothing is written outside');
    if (error === undefined) await callJson(engine.socketPath, 'DELETE', `/images/${name}`);
    return error;
  }

  const images = (): Promise<unknown> => callJson(engine.socketPath, 'GET', '/images/json?all=1');
  let former: unknown;
  beforeEach(async () => {
    former = await images();
  });
  afterEach(async () => assert.deepEqual(await images(), former, 'no half-made image'));

  test('a path that climbs out', async () => {
    await outcome([{ path: `../../../../../../../../../../../..${outside}`, content: 'x' }]);
  });

  test('an absolute path stays below the root', async () => {
    await outcome([{ path: outside, content: 'x' }]);
  });

  test('a file below a symbolic link that points out', async () => {
    await outcome([
      { path: 'link', type: 'symlink', target: '/tmp' },
      { path: `link/${outside.slice(5)}`, content: 'x' },
    ]);
    await outcome([
      { path: 'link', type: 'symlink', target: '../../../../../../../../../../../tmp' },
      { path: `link/${outside.slice(5)}`, content: 'x' },
    ]);
  });

  test('a hard link that climbs out or has no target', async () => {
    assert.ok(
      (await outcome([{ path: 'hard', type: 'link', target: '../../../../../../../../../../etc/passwd' }])) !==
        undefined,
    );
    assert.ok((await outcome([{ path: 'hard', type: 'link', target: 'no/such/file' }])) !== undefined);
  });

  test('a layer that is no archive, and one that ends in the middle of a file', async () => {
    const whole = tarOf([{ path: 'file', content: 'z'.repeat(10_000) }]);
    const layers = {
      noise: layerOfTar(Buffer.from('this is no tar at all'.repeat(100))),
      torn: layerOfTar(whole.subarray(0, 4096)),
      plain: { ...layerOfTar(whole, 'none'), compression: 'gzip' as const },
    };
    for (const [name, layer] of Object.entries(layers)) {
      await pushImage(hostile.url, `hostile/${name}`, '1', buildImage({ layers: [layer] }));
      const { error } = await pull(engine, `${hostile.host}/hostile/${name}:1`);
      if (name === 'plain' && error === undefined)
        await callJson(engine.socketPath, 'DELETE', `/images/${hostile.host}/hostile/${name}:1`);
      else assert.ok(error !== undefined, name);
    }
  });
});

test('the memory that all of them took has a bound', () => {
  const peak = /^VmHWM:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${engine.pid}/status`, 'utf8'))?.[1];
  assert.ok(Number(peak) * 1024 < MAX_PEAK_BYTES, `${peak} kB`);
});
