/** Pulls that break off: what was fetched is kept, checked and used, and goes away in time. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtemp, readdir, readFile, rm, stat, truncate, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { PartialBlobs } from '../../src/registry/partial-blobs.js';
import { Cleanup } from '../support/cleanup.js';
import { startCuttingProxy } from '../support/cutting-proxy.js';
import { assertWithin, diskBytes } from '../support/disk.js';
import { Engine } from '../support/engine.js';
import { engined } from '../support/engined.js';
import { call, callJson, jsonLines, open } from '../support/http.js';
import {
  type BuiltImage,
  type BuiltLayer,
  buildImage,
  type Compression,
  generatedLayer,
  pushImage,
} from '../support/image-builder.js';
import { pull, pullOk } from '../support/pulls.js';
import { startRegistry, type TestRegistry } from '../support/registry.js';
import { SmallDisk } from '../support/small-disk.js';
import { waitFor } from '../support/wait.js';

type Context = { after(step: () => Promise<void>): void; diagnostic(text: string): void };

async function registryWith(t: Context, image: BuiltImage, ...repositories: string[]): Promise<TestRegistry> {
  const registry = await startRegistry();
  t.after(() => registry.stop());
  for (const repository of repositories) await pushImage(registry.url, repository, 'latest', image);
  return registry;
}

/** That of all tests but one. With more downloads a layer would get several connections and be whole soon. */
let engine: Engine;
before(async () => {
  engine = await Engine.start(engined({ args: ['--max-concurrent-downloads=3'] }));
});
after(() => engine.discard());

const MB = 1 << 20;
/** The size of an image with which the first test replaces the small one. The long run: ENGINE_RESUME_MB=2000. */
const LARGE_MB = Number(process.env['ENGINE_RESUME_MB'] ?? 0);
/** Kills of the daemon during that pull. */
const KILLS = LARGE_MB > 0 ? 5 : 2;
/** A line with which a small image is long enough under way to be interrupted. */
const SLOW = { downPerSecond: 20 * MB };
/** These engines keep their downloads in `ENGINE_TMPDIR`. */
const elsewhere = new Map<Engine, string>();
const partialDir = (engine: Engine): string => elsewhere.get(engine) ?? join(engine.dir, 'data/image/partial');
const sizeOf = (image: BuiltImage): number => image.layers.reduce((sum, { blob }) => sum + blob.length, 0);
const layer = (megabytes: number, seed: number, compression?: Compression): BuiltLayer =>
  generatedLayer({
    root: `d${seed}`,
    bytes: megabytes * MB,
    files: 30,
    seed,
    ...(compression === undefined ? {} : { compression }),
  });

async function kept(engine: Engine): Promise<number> {
  const names = (await readdir(partialDir(engine))).filter((name) => !name.includes('.'));
  const sizes = await Promise.all(
    names.map(async (name) => (await stat(join(partialDir(engine), name)).catch(() => undefined))?.size ?? 0),
  );
  return sizes.reduce((sum, size) => sum + size, 0);
}

/** Connections of this network namespace hold few bytes: those that a killed daemon has not read are sent again. */
async function holdLittle(t: Context): Promise<void> {
  for (const path of ['/proc/sys/net/ipv4/tcp_rmem', '/proc/sys/net/ipv4/tcp_wmem']) {
    const before = await readFile(path);
    await writeFile(path, '4096 131072 262144');
    t.after(() => writeFile(path, before));
  }
}

const hasKept = (engine: Engine) => async (): Promise<boolean> => (await kept(engine)) >= 4 * MB;

/** Begins a pull and resolves when enough of it lies on disk. */
async function pullUntil(
  engine: Engine,
  reference: string,
  isEnough: () => Promise<boolean>,
): Promise<{ close(): void }> {
  const reply = await open(engine.socketPath, 'POST', `/images/create?fromImage=${encodeURIComponent(reference)}`);
  reply.message.on('error', () => undefined).resume();
  await waitFor('the download to be under way', isEnough, 60_000, 10);
  return reply;
}

test(
  'a pull through a line that always breaks, of a daemon killed again and again, has hardly a byte twice',
  { timeout: 240_000 + LARGE_MB * 500 },
  async (t) => {
    const isLarge = LARGE_MB > 0;
    const layers = isLarge
      ? [1, 2, 3, 4].map((seed) => layer(LARGE_MB / 4, seed, 'none'))
      : [layer(8, 1, 'none'), layer(4, 2)];
    const image = buildImage({ layers });
    await holdLittle(t);
    const registry = await registryWith(t, image, 'broken');
    const proxy = await startCuttingProxy(registry.host, { down: (isLarge ? 50 : 0.65) * MB });
    t.after(() => proxy.stop());
    const reference = `${proxy.host}/broken:latest`;
    const total = sizeOf(image);
    for (let kill = 1; kill <= KILLS; kill++) {
      const reply = await open(engine.socketPath, 'POST', `/images/create?fromImage=${encodeURIComponent(reference)}`);
      reply.message.on('error', () => undefined).resume();
      await waitFor(
        'more bytes to come',
        () => proxy.downBytes > (total * kill) / (KILLS + 2),
        60_000 + LARGE_MB * 20,
        5,
      );
      await engine.stop('SIGKILL');
      await engine.start();
    }
    await pullOk(engine, reference);
    assert.ok(proxy.cuts > 10, String(proxy.cuts));
    const extra = proxy.downBytes - total;
    t.diagnostic(`${extra} bytes of ${total} again, ${proxy.cuts} cuts`);
    // Bytes that were in the buffers of both connections when the daemon was killed are lost.
    assert.ok(extra < total * 0.05 + KILLS * (isLarge ? 2 : 1) * MB, `${extra} bytes of ${total} were sent again`);
    const { Id } = await callJson<{ Id: string }>(engine.socketPath, 'GET', `/images/${reference}/json`);
    assert.equal(Id, image.id);
    assert.deepEqual(await readdir(partialDir(engine)), [], 'nothing is kept of what is complete');
  },
);

test('a client that leaves has its bytes used by the next one, of another repository, in ENGINE_TMPDIR', async (t) => {
  const image = buildImage({ layers: [layer(16, 3, 'none')] });
  const registry = await registryWith(t, image, 'one', 'two');
  const proxy = await startCuttingProxy(registry.host, SLOW);
  t.after(() => proxy.stop());
  const temporary = await mkdtemp(join(tmpdir(), 'engined-temporary-'));
  const own = await Engine.start(engined({ env: { ENGINE_TMPDIR: temporary } }));
  t.after(() => own.discard());
  t.after(() => rm(temporary, { recursive: true, force: true }));
  elsewhere.set(own, join(temporary, (await readdir(temporary)).join(), 'partial'));
  const reply = await pullUntil(own, `${proxy.host}/one:latest`, hasKept(own));
  reply.close();
  const left = await waitFor('the transfer to end', async () => {
    const before = await kept(own);
    await new Promise((resolve) => setTimeout(resolve, 300));
    return (await kept(own)) === before && before;
  });
  assert.equal(await own.stop(), 0);
  await own.start();
  const before = proxy.downBytes;
  const { messages, error } = await pull(own, `${proxy.host}/two:latest`);
  assert.equal(error, undefined);
  assert.ok(messages.some(({ status }) => status === 'Pull complete'));
  assert.ok(proxy.downBytes - before < sizeOf(image) - left + MB, 'only the rest is fetched');
  assert.equal(await own.stop(), 0);
  assert.deepEqual(await readdir(temporary), [], 'nothing is left there');
});

/** Damages that a kept blob and its notes can have, each on another blob. */
const DAMAGES: readonly ((path: string, length: number) => Promise<void>)[] = [
  async (path) => {
    const bytes = await readFile(path);
    bytes.fill(0x55, bytes.length >> 1);
    await writeFile(path, bytes);
  },
  (path) => writeFile(`${path}.json`, '{"half'),
  (path) => rm(`${path}.json`),
  // Longer than the blob, as a stranger might leave it.
  (path, length) => truncate(path, length + 10),
  // A power cut may leave the length without the bytes.
  (path) => truncate(path, 0).then(() => truncate(path, 2 * MB)),
];

test('what was damaged on disk is found out and fetched again', async (t) => {
  const image = buildImage({ layers: [layer(6, 4, 'none'), layer(6, 6, 'none'), layer(6, 7, 'none')] });
  const registry = await registryWith(t, image, 'app');
  const proxy = await startCuttingProxy(registry.host, { downPerSecond: MB });
  t.after(() => proxy.stop());
  const reference = `${proxy.host}/app:latest`;
  const paths = image.layers.map(({ digest }) => join(partialDir(engine), digest.slice(7)));
  for (const damages of [DAMAGES.slice(0, 3), DAMAGES.slice(3)]) {
    await pullUntil(engine, reference, async () => {
      const sizes = await Promise.all(paths.map(async (path) => (await stat(path).catch(() => undefined))?.size ?? 0));
      return Math.min(...sizes) >= 2 * MB;
    });
    await engine.stop('SIGKILL');
    for (const [index, damage] of damages.entries())
      await damage(paths[index] ?? '', image.layers[index]?.blob.length ?? 0);
    await engine.start();
    assert.equal((await pull(engine, reference)).error, undefined);
    assert.equal((await callJson<{ Id: string }>(engine.socketPath, 'GET', `/images/${reference}/json`)).Id, image.id);
    await callJson(engine.socketPath, 'DELETE', `/images/${reference}`);
    assert.deepEqual(await readdir(partialDir(engine)), []);
  }
});

test('a prune takes what broken pulls left, but not with a filter, and not from a pull under way', async (t) => {
  const image = buildImage({ layers: [layer(12, 5, 'none')] });
  const registry = await registryWith(t, image, 'app');
  const proxy = await startCuttingProxy(registry.host, SLOW);
  t.after(() => proxy.stop());
  await pullUntil(engine, `${proxy.host}/app:latest`, hasKept(engine));
  await engine.stop('SIGKILL');
  await engine.start();
  const left = await kept(engine);
  assert.ok(left >= 4 * MB);
  // A layer that was being unpacked at the kill is removed in the background.
  await waitFor('the removal of what was unpacked', async () => {
    const { DataRoot } = await callJson<{ DataRoot: { Size: number; Partials: { Digest: string; Size: number }[] } }>(
      engine.socketPath,
      'GET',
      '/system/df',
    );
    assert.deepEqual(
      DataRoot.Partials.map(({ Digest }) => Digest),
      [image.layers[0]?.digest],
    );
    assertWithin(DataRoot.Partials[0]?.Size ?? 0, left, 0.01, 'what is kept');
    return Math.abs(DataRoot.Size / diskBytes(join(engine.dir, 'data')) - 1) <= 0.01;
  });
  const prune = (query = ''): Promise<{ SpaceReclaimed: number }> =>
    callJson(engine.socketPath, 'POST', `/images/prune${query}`);
  assert.equal((await prune(`?filters=${encodeURIComponent('{"until":["1h"]}')}`)).SpaceReclaimed, 0);
  assert.equal((await prune()).SpaceReclaimed, left);
  assert.deepEqual(await readdir(partialDir(engine)), []);

  const reply = await open(
    engine.socketPath,
    'POST',
    `/images/create?fromImage=${encodeURIComponent(`${proxy.host}/app:latest`)}`,
  );
  let last = '';
  for await (const { status } of jsonLines<{ status?: string }>(reply.message)) {
    if (status === 'Downloading') await prune();
    last = status ?? last;
  }
  assert.match(last, /^Status: Downloaded newer image/);
  assert.equal((await call(engine.socketPath, 'GET', '/_ping')).status, 200);
});

test('partial blobs are bounded in age and in bytes', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'engined-partial-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  const partials = new PartialBlobs(dir, { maxAgeMs: 3600_000, maxBytes: 5 * MB });
  await partials.load();
  const digest = (digit: string): `sha256:${string}` => `sha256:${digit.repeat(64)}`;
  const add = async (digit: string, megabytes: number, minutesAgo: number): Promise<void> => {
    await writeFile(join(dir, digit.repeat(64)), Buffer.alloc(megabytes * MB));
    const at = new Date(Date.now() - minutesAgo * 60_000);
    await utimes(join(dir, digit.repeat(64)), at, at);
  };
  await add('a', 2, 10);
  await add('b', 2, 20);
  await add('c', 2, 30);
  await add('d', 1, 90);
  await writeFile(join(dir, 'stray.json'), '{}');
  await partials.load();
  assert.deepEqual(
    (await partials.list()).map((one) => [one.digest, one.sizeBytes, one.isActive]),
    [
      [digest('a'), 2 * MB, false],
      [digest('b'), 2 * MB, false],
    ],
  );
  assert.deepEqual((await readdir(dir)).length, 2);

  assert.equal(await partials.claim(digest('e'), 100), undefined, 'not worth it');
  assert.equal(await partials.claim(digest('e'), 6 * MB), undefined, 'too large');
  const claim = await partials.claim(digest('a'), 4 * MB);
  assert.equal(await partials.claim(digest('a'), 4 * MB), undefined, 'taken');
  assert.equal(await partials.prune(), 2 * MB, 'what is being filled stays');
  claim?.keep();
  assert.equal(await partials.prune(), 2 * MB);
});

test('space behind the bytes that a killed daemon had asked for ahead is given back', async (t) => {
  const cleanup = new Cleanup();
  t.after(() => cleanup.run());
  const dir = join(SmallDisk.make(cleanup, 64).path, 'partial');
  await new PartialBlobs(dir).load();
  const path = join(dir, 'a'.repeat(64));
  await writeFile(path, Buffer.alloc(2 * MB, 'x'));
  execFileSync('fallocate', ['--keep-size', '--length', String(10 * MB), path]);
  const past = new Date(Date.now() - 60_000);
  await utimes(path, past, past);
  const partials = new PartialBlobs(dir);
  await partials.load();
  const { size, blocks } = await stat(path);
  assert.deepEqual([size, blocks * 512 < 3 * MB], [2 * MB, true], `${blocks} blocks`);
  assert.deepEqual(
    (await partials.list()).map(({ lastUsedMs }) => Math.round(lastUsedMs)),
    [past.getTime()],
    'it is not younger for that',
  );
});
