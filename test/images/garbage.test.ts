/**
 * Unused build cache and images go when the disk fills up, the least recently used first; what is in use or under way
 * never does.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync, statfsSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { startSeededRegistry, type SeededRegistry } from '../support/busybox-image.js';
import { Cleanup } from '../support/cleanup.js';
import { attempt, engineOk } from '../support/engine-commands.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson } from '../support/http.js';
import { archiveOf, load, oldArchive } from '../support/image-archives.js';
import { buildImage, buildLayer, generatedLayer, pushImage, tarOf } from '../support/image-builder.js';
import { pull } from '../support/pulls.js';
import { waitFor } from '../support/wait.js';

/** Seconds that pulls run against prunes. The long run: ENGINE_RACE_SECONDS=600. */
const RACE_SECONDS = Number(process.env['ENGINE_RACE_SECONDS'] ?? 1);
const DISK_MIB = 96;

const cleanup = new Cleanup();
let registry: SeededRegistry;

before(async () => {
  registry = await startSeededRegistry();
  cleanup.add(() => registry.stop());
});
after(() => cleanup.run());

const names = async (engine: Engine): Promise<string[]> =>
  (await callJson<{ RepoTags: string[] }[]>(engine.socketPath, 'GET', '/images/json'))
    .flatMap(({ RepoTags }) => RepoTags)
    .sort();

describe('by watermarks', () => {
  let engine: Engine;
  let disk: string;

  before(async () => {
    disk = mkdtempSync(join(tmpdir(), 'garbage-'));
    execFileSync('mount', ['-t', 'tmpfs', '-o', `size=${DISK_MIB}m`, 'tmpfs', disk]);
    cleanup.add(async () => {
      execFileSync('umount', ['-l', disk]);
      rmSync(disk, { recursive: true });
    });
    engine = await Engine.start(
      engined({
        args: [
          '--data-root',
          join(disk, 'data'),
          '--image-gc-high-percent',
          '60',
          '--image-gc-low-percent',
          '40',
          '--image-gc-min-age',
          '2s',
        ],
      }),
    );
    cleanup.add(() => engine.close());
  });

  /** An image of 12 MiB. */
  async function bring(name: string, seed: number): Promise<void> {
    const image = buildImage({
      layers: [generatedLayer({ root: name, bytes: 12 << 20, files: 12, seed, compression: 'none' })],
      config: { Cmd: ['sh'] },
    });
    const { error } = await load(engine, archiveOf(oldArchive(image, [`${name}:1`])));
    assert.equal(error, undefined);
  }

  /** Builds an image with 12 MiB, and removes it, so that only the build cache has the files. */
  async function leaveCache(seed: number): Promise<void> {
    const entries = [
      { path: 'Dockerfile', content: Buffer.from('FROM scratch\nCOPY file /\n') },
      { path: 'file', content: randomBytes(12 << 20) },
    ];
    const headers = { 'Content-Type': 'application/x-tar' };
    const path = `/build?version=2&t=cached:${seed}`;
    const { text } = await call(engine.socketPath, 'POST', path, { headers, body: tarOf(entries) });
    assert.match(text, /moby\.image\.id/);
    await engineOk(engine, ['rmi', `cached:${seed}`]);
  }

  test('the build cache goes first, and no image does while that is enough', async () => {
    for (const seed of [1, 2, 3]) await leaveCache(seed);
    const { BuildCache } = await callJson<{ BuildCache: unknown[] }>(engine.socketPath, 'GET', '/system/df');
    assert.equal(BuildCache.length, 3);
    await bring('old', 9);
    await new Promise((resolve) => setTimeout(resolve, 2500));
    await bring('new', 10);
    await waitFor('the log to tell', () => engine.log.includes('removed unused build cache to make room'), 20_000);
    assert.deepEqual(await names(engine), ['new:1', 'old:1']);
    assert.doesNotMatch(engine.log, /removed unused images/);
    await engineOk(engine, ['rmi', 'new:1', 'old:1']);
    await callJson(engine.socketPath, 'POST', '/build/prune?all=1');
    await waitFor('the space to come back', () => {
      const { blocks, bfree, bsize } = statfsSync(disk);
      return (blocks - bfree) * bsize < 12 << 20;
    });
  });

  test('the oldest go until enough is free; those of containers stay, and so does what is young', async () => {
    const begin = String(Date.now() / 1000);
    await bring('used', 1);
    await engineOk(engine, ['create', '--name', 'user', 'used:1', 'sh']);
    await bring('first', 2);
    await bring('second', 3);
    await bring('third', 4);
    // A container, gone again, makes its image the most recently used one.
    await engineOk(engine, ['create', '--name', 'gone', 'first:1', 'sh']);
    await engineOk(engine, ['rm', 'gone']);
    assert.deepEqual(await names(engine), ['first:1', 'second:1', 'third:1', 'used:1']);
    await new Promise((resolve) => setTimeout(resolve, 2500));
    await bring('fourth', 5);
    // 60 MiB of 96 are above the high watermark. Below the low one there is room for three of 12 MiB.
    await waitFor('the oldest to go', async () => !(await names(engine)).includes('third:1'), 20_000);
    assert.deepEqual(await names(engine), ['first:1', 'fourth:1', 'used:1']);
    // It is told when all of them are gone.
    await waitFor('the log to tell', () => engine.log.includes('removed unused images to make room'), 20_000);
    assert.equal((await attempt(engine, ['inspect', 'user'])).status, 0);
    const seen = await engineOk(engine, [
      'events',
      '--since',
      begin,
      '--until',
      String(Math.ceil(Date.now() / 1000) + 1),
      '--filter',
      'type=image',
      '--filter',
      'event=delete',
      '--format',
      '{{.Action}}',
    ]);
    assert.equal(seen.split('\n').length, 2);
  });

  test('with nothing that may go, the log says so', async () => {
    for (const name of ['first', 'fourth']) await engineOk(engine, ['create', `${name}:1`, 'sh']);
    await bring('fifth', 6);
    await engineOk(engine, ['create', 'fifth:1', 'sh']);
    await bring('sixth', 7);
    await engineOk(engine, ['create', 'sixth:1', 'sh']);
    await waitFor('a warning', () => /above the high watermark, but no image can be removed/.test(engine.log), 20_000);
    assert.deepEqual(await names(engine), ['fifth:1', 'first:1', 'fourth:1', 'sixth:1', 'used:1']);
  });

  test('what does not fit on the disk is not loaded, and leaves nothing', async () => {
    const image = buildImage({
      layers: [generatedLayer({ root: 'huge', bytes: 80 << 20, files: 2, seed: 8, compression: 'none' })],
      config: {},
    });
    const before = await names(engine);
    assert.match((await load(engine, archiveOf(oldArchive(image, ['huge:1'])))).error ?? '', /no space left on device/);
    assert.deepEqual(await names(engine), before);
    assert.deepEqual(
      (await callJson<{ findings: unknown[] }>(engine.socketPath, 'POST', '/engine/fsck?dryRun=1')).findings,
      [],
    );
  });

  test('watermarks that make no sense are refused', () => {
    const validate = (...args: string[]): string => {
      try {
        execFileSync(process.execPath, [join(import.meta.dirname, '../../bundle/main.js'), '--validate', ...args], {
          stdio: 'pipe',
        });
        return '';
      } catch (error) {
        return String((error as { stderr: Buffer }).stderr);
      }
    };
    assert.match(
      validate('--image-gc-high-percent', '50', '--image-gc-low-percent', '50'),
      /image-gc-low-percent \(50\) must be below image-gc-high-percent \(50\)/,
    );
    assert.match(validate('--image-gc-high-percent', '100'), /must be from 0 to 99/);
    assert.match(validate('--image-gc-min-age', '-5'), /cannot be negative/);
  });
});

describe('races', () => {
  test(
    'pulls and loads do not fail while everything unused is pruned all the time',
    { timeout: 120_000 + RACE_SECONDS * 1000 },
    async () => {
      const engine = await Engine.start(engined());
      try {
        const layers = [0, 1, 2, 3].map((seed) =>
          buildLayer([{ path: `f${seed}`, content: Buffer.alloc(200_000, seed + 1) }]),
        );
        const images = [layers.slice(0, 2), layers.slice(0, 3), layers.slice(0, 4), layers.slice(2)].map((stack) =>
          buildImage({ layers: stack, config: {} }),
        );
        for (const [index, image] of images.entries()) await pushImage(registry.url, `race/${index}`, '1', image);
        const archive = archiveOf(oldArchive(images[2] ?? assert.fail(), ['loaded:1']));
        const end = Date.now() + RACE_SECONDS * 1000;
        const failures: string[] = [];
        const loop = async (work: () => Promise<string | undefined>): Promise<number> => {
          let rounds = 0;
          for (; Date.now() < end; rounds++) {
            const failure = await work();
            if (failure !== undefined) failures.push(failure);
          }
          return rounds;
        };
        const pulling = images.map((_, index) =>
          loop(async () => (await pull(engine, `${registry.host}/race/${index}:1`)).error),
        );
        const loading = loop(async () => (await load(engine, archive)).error);
        const pruning = loop(async () => {
          await callJson(
            engine.socketPath,
            'POST',
            `/images/prune?filters=${encodeURIComponent('{"dangling":["false"]}')}`,
          );
          return undefined;
        });
        const rounds = await Promise.all([...pulling, loading, pruning]);
        assert.deepEqual(failures, []);
        assert.ok(
          rounds.every((count) => count > 0),
          rounds.join(),
        );
        await callJson(
          engine.socketPath,
          'POST',
          `/images/prune?filters=${encodeURIComponent('{"dangling":["false"]}')}`,
        );
        assert.deepEqual(await names(engine), []);
        const { findings } = await callJson<{ findings: unknown[] }>(
          engine.socketPath,
          'POST',
          '/engine/fsck?dryRun=1',
        );
        assert.deepEqual(findings, []);
      } finally {
        await engine.close();
      }
    },
  );
});
