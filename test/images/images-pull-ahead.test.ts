/** Pulls into a store that prefers whole layers below: a layer is fetched while the one below is on its way. */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readdir, readFile, stat } from 'node:fs/promises';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { beforeEach, test } from 'node:test';
import type { PullSubscription } from '../../src/actors/pull/pull-sequence.js';
import { chainId } from '../../src/ports/chain-id.js';
import type { Digest } from '../../src/ports/storage.js';
import { type FaultyServer, startFaultyServer } from '../support/faulty-registry.js';
import { type BuiltLayer, buildImage, generatedLayer, sha256 } from '../support/image-builder.js';
import type { Line, PullHarness } from '../support/pull-harness.js';
import { PullScene } from '../support/pull-scene.js';
import { waitFor } from '../support/wait.js';

const scene = new PullScene();
let server: FaultyServer;
let harness: PullHarness;
beforeEach(() => {
  ({ server, harness } = scene);
  harness.layers.prefersWholeBelow = true;
});

const made = (seed: number): BuiltLayer =>
  generatedLayer({ root: `d${seed}`, bytes: 3 << 20, files: 12, seed, compression: seed === 2 ? 'gzip' : 'none' });
const layers = [made(1), made(2), made(3)];
const [low, middle, top] = layers as [BuiltLayer, BuiltLayer, BuiltLayer];
const chains = layers.reduce<Digest[]>((all, { diffId }) => [...all, chainId(all.at(-1), diffId)], []);
const [lowChain, middleChain] = chains as [Digest, Digest];

const partialDir = (): string => join(harness.dir, 'partial');
const idOf = ({ digest }: BuiltLayer): string => digest.slice(7, 19);
const requestsOf = (layer: BuiltLayer, on = server): number =>
  on.requests.filter((line) => line.endsWith(layer.digest)).length;

/** Answers the requests for a blob with some of its bytes, and with the rest when told so. */
function hold(layer: BuiltLayer, bytes = 0, on = server): { release(): void; fail(): void } {
  const held: ServerResponse[] = [];
  const bodyOf = (path: string): Buffer => on.documents.get(path)?.body ?? assert.fail(path);
  let isOver = false;
  const before = on.intercept;
  on.intercept = (request, response, nth) => {
    if (isOver || request.url?.endsWith(layer.digest) !== true) return before?.(request, response, nth) ?? false;
    response.writeHead(200, { 'content-length': layer.blob.length });
    if (bytes > 0) response.write(bodyOf(request.url).subarray(0, bytes));
    else response.flushHeaders();
    held.push(response);
    return true;
  };
  const end = (finish: (response: ServerResponse) => void) => (): void => {
    isOver = true;
    held.splice(0).forEach(finish);
  };
  return {
    release: end((response) => response.end(bodyOf(response.req.url ?? '').subarray(bytes))),
    fail: end((response) => response.destroy()),
  };
}

interface Watched {
  readonly subscription: PullSubscription;
  readonly lines: Line[];
  readonly ended: Promise<void>;
  /** Resolves when a line of the layer has the status. */
  shows(layer: BuiltLayer, status: string): Promise<unknown>;
}

async function start(name = `${server.host}/app`): Promise<Watched> {
  const subscription = await harness.start(name);
  const lines: Line[] = [];
  const read = async (): Promise<void> => {
    for await (const text of subscription)
      for (const line of text.split('\r\n')) if (line !== '') lines.push(JSON.parse(line) as Line);
  };
  const shows = (layer: BuiltLayer, status: string): Promise<unknown> =>
    waitFor(`${status} of ${layer.digest}`, () => lines.some((l) => l.id === idOf(layer) && l.status === status));
  return { subscription, lines, ended: read(), shows };
}

async function succeeds({ lines, ended }: Watched): Promise<void> {
  await ended;
  assert.match(lines.at(-1)?.status ?? '', /Downloaded newer image/, JSON.stringify(lines.at(-1)));
  for (const [index, chain] of chains.entries()) {
    const name = `d${index + 1}/d0/f7`;
    const built = generatedLayer({ root: 'x', bytes: 3 << 20, files: 12, seed: index + 1, compression: 'none' });
    const bytes = await readFile(join(harness.layers.dirOf(chain), 'diff', name));
    assert.ok(built.blob.includes(bytes), name);
  }
  assert.deepEqual(await readdir(partialDir()), [], 'nothing is kept of what is complete');
}

const allOnWhole = (): void =>
  assert.deepEqual(
    harness.layers.stagings.map(({ parent, isWhole }) => [parent, isWhole]),
    [undefined, lowChain, middleChain].map((parent) => [parent, true]),
  );

test('layers that are fetched first wait as files, and each is unpacked when the one below is whole', async () => {
  scene.publish(buildImage({ layers }));
  const held = hold(low);
  const pull = await start();
  await pull.shows(middle, 'Download complete');
  await pull.shows(top, 'Download complete');
  assert.equal(harness.layers.stagings.length, 1);
  held.release();
  await succeeds(pull);
  allOnWhole();
  for (const layer of [middle, top]) {
    const statuses = pull.lines.filter(({ id }) => id === idOf(layer)).map(({ status }) => status);
    const shown = statuses.filter((status, index) => status !== statuses[index - 1]);
    assert.deepEqual(shown.slice(-4), ['Verifying Checksum', 'Download complete', 'Extracting', 'Pull complete']);
    assert.equal(requestsOf(layer), 1);
  }
});

test('a layer is unpacked behind its download when the one below becomes whole meanwhile', async () => {
  scene.publish(buildImage({ layers }));
  const [below, above] = [hold(low), hold(top, 2 << 20)];
  const pull = await start();
  await pull.shows(middle, 'Download complete');
  await waitFor('the beginning of the upper one', async () => {
    const found = await stat(join(partialDir(), top.digest.slice(7))).catch(() => undefined);
    return found?.size === 2 << 20;
  });
  below.release();
  const unpacked = join(harness.dir, 'layers/staging-2/diff/d3/d0/f5');
  await waitFor('its first files', () => existsSync(unpacked));
  above.release();
  await succeeds(pull);
  allOnWhole();
});

test('with one download at a time a layer does not keep the ones below from theirs', async () => {
  harness = await scene.restart({ maxConcurrentDownloads: () => 1, maxTransfers: 1 });
  harness.layers.prefersWholeBelow = true;
  scene.publish(buildImage({ layers }));
  scene.publish(buildImage({ layers: layers.toReversed() }), 'other');
  const both = [await start(), await start(`${server.host}/other`)];
  await Promise.all(both.map(({ ended }) => ended));
  for (const { lines } of both) assert.match(lines.at(-1)?.status ?? '', /Downloaded newer image/);
  assert.deepEqual(await readdir(partialDir()), []);
});

for (const isMirror of [false, true])
  test(`when one below fails${isMirror ? ' at a mirror' : ''}, a layer's bytes stay for another pull`, async () => {
    const name = isMirror ? 'app' : `${server.host}/library/app`;
    const mirrors = isMirror ? [server.url] : [];
    harness = await scene.restart({ rules: () => ({ insecure: [], mirrors, certsDir: '/nonexistent' }) });
    harness.layers.prefersWholeBelow = true;
    scene.publish(buildImage({ layers }), 'library/app');
    const path = `/v2/library/app/blobs/${low.digest}`;
    server.documents.set(path, { body: Buffer.alloc(low.blob.length, 7) });
    const [below, above] = [hold(low), hold(top, 2 << 20)];
    const pull = await start(name);
    await pull.shows(middle, 'Download complete');
    below.release();
    await pull.ended;
    const { error = '' } = pull.lines.at(-1) ?? {};
    // After the mirror the registry itself is asked, which cannot be reached.
    assert.match(error, isMirror ? /registry-1/ : new RegExp(`verification failed for digest ${low.digest}`));
    await scene.settled();
    above.fail();
    assert.deepEqual([requestsOf(middle), requestsOf(top)], [1, 1], 'nothing is fetched again');
    assert.deepEqual(harness.layers.chainIds, []);
    assert.equal((await stat(join(partialDir(), middle.digest.slice(7)))).size, middle.blob.length);
    server.documents.set(path, { body: low.blob });
    await succeeds(await start(name));
    assert.equal(requestsOf(middle), 1);
  });

test('a pull that is given up while layers wait leaves nothing staged, and the next one begins at once', async () => {
  scene.publish(buildImage({ layers }));
  const held = hold(low, 1 << 20);
  const pull = await start();
  await pull.shows(middle, 'Download complete');
  await pull.shows(top, 'Download complete');
  await pull.subscription.return?.();
  const next = await start();
  await waitFor('the lowest layer to be asked for again', () => requestsOf(low) === 2);
  held.release();
  await succeeds(next);
  assert.deepEqual([requestsOf(middle), requestsOf(top)], [1, 1], 'what was whole is not fetched again');
});

for (const isFetchedFirst of [true, false])
  for (const [what, prepare, reason] of [
    [
      'digest',
      (): void => {
        const body = Buffer.concat([top.blob.subarray(0, -1), Buffer.from('x')]);
        server.documents.set(`/v2/app/blobs/${top.digest}`, { body });
      },
      /filesystem layer verification failed/,
    ],
    ['diff ID', (): void => undefined, /does not have the diff ID/],
  ] as const)
    test(`a wrong ${what} fails the pull, fetched ${isFetchedFirst ? 'before' : 'after'} the layer below`, async () => {
      const wrong = { ...top, diffId: sha256('another') };
      scene.publish(buildImage({ layers: [low, middle, what === 'diff ID' ? wrong : top] }));
      prepare();
      const held = hold(isFetchedFirst ? low : top);
      const pull = await start();
      if (!isFetchedFirst) await waitFor('the layer below', () => harness.layers.find(middleChain) !== undefined);
      else if (what === 'diff ID') await pull.shows(top, 'Download complete');
      else await pull.ended;
      held.release();
      await pull.ended;
      assert.match(pull.lines.at(-1)?.error ?? '', reason);
      await scene.settled();
      assert.deepEqual(harness.layers.chainIds, []);
      assert.ok(!existsSync(join(partialDir(), top.digest.slice(7))), 'wrong bytes are not kept');
    });

test('a mirror that breaks off is left for the next host, which sends the rest', async () => {
  const mirror = await startFaultyServer();
  harness = await scene.restart({
    rules: () => ({ insecure: [], mirrors: [mirror.url, `${server.url}/`], certsDir: '/nonexistent' }),
    maxAttempts: () => 1,
  });
  harness.layers.prefersWholeBelow = true;
  try {
    for (const on of [mirror, server]) scene.publish(buildImage({ layers }), 'library/app', 'latest', on);
    const [below, above] = [hold(low, 0, mirror), hold(top, 1 << 19, mirror)];
    const pull = await start('app');
    await waitFor('the beginning of the upper one', () => requestsOf(top, mirror) === 1);
    await pull.shows(middle, 'Download complete');
    above.fail();
    await pull.shows(top, 'Download complete');
    assert.equal(requestsOf(top), 1);
    below.release();
    await succeeds(pull);
    allOnWhole();
  } finally {
    await mirror.stop();
  }
});

test('without room for their blobs layers are fetched when the one below is whole', async () => {
  scene.publish(buildImage({ layers }));
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'no-room', partialDir()]);
  try {
    const held = hold(low);
    const pull = await start();
    await waitFor('the others to be given up', () => requestsOf(middle) + requestsOf(top) === 2);
    held.release();
    await succeeds(pull);
    assert.ok(harness.layers.stagings.every(({ isWhole }) => isWhole));
  } finally {
    execFileSync('umount', ['-l', partialDir()]);
  }
});
