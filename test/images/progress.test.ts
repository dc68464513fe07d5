/** The progress of pulls, in both forms: what it promises to those who draw it holds for pulls of every kind. */
import assert from 'node:assert/strict';
import { afterEach, before, beforeEach, test } from 'node:test';
import type { PullSubscription } from '../../src/actors/pull/pull-sequence.js';
import { parseReference } from '../../src/images/reference.js';
import { Cleanup } from '../support/cleanup.js';
import { type FaultyServer, startFaultyServer } from '../support/faulty-registry.js';
import { type BuiltImage, buildImage, type BuiltLayer, generatedLayer } from '../support/image-builder.js';
import { startEngine } from '../support/engine-with-image.js';
import { open } from '../support/http.js';
import { type Line, linesOf, type PullHarness, startPullHarness } from '../support/pull-harness.js';
import { randomNumbers } from '../support/random-numbers.js';

interface TypedRecord {
  readonly kind: 'layer' | 'pull';
  readonly phase: string;
  readonly layer?: number;
  readonly digest?: string;
  readonly current?: number;
  readonly total?: number;
  readonly endpoint?: string;
  readonly retry?: { readonly afterSeconds: number; readonly reason: string };
  readonly etaSeconds?: number;
  readonly layers?: number;
  readonly error?: { readonly message: string; readonly retryable: boolean };
}

let server: FaultyServer;
let harness: PullHarness;
let pool: readonly BuiltLayer[];

before(() => {
  pool = Array.from({ length: 12 }, (_, index) =>
    generatedLayer({ root: `p${index}`, bytes: 20_000 * (index + 1), files: 3, seed: index + 1 }),
  );
});
beforeEach(async () => {
  server = await startFaultyServer();
  harness = await startPullHarness({ retryDelayMs: 5, limits: { connectMs: 2000, responseMs: 2000, idleMs: 300 } });
});
afterEach(async () => {
  assert.deepEqual(harness.errors, []);
  await harness.stop();
  await server.stop();
});

function publish(image: BuiltImage, name: string): void {
  const manifest = { body: image.manifest, type: image.mediaType, headers: { 'docker-content-digest': image.digest } };
  for (const reference of ['latest', image.digest])
    server.documents.set(`/v2/${name}/manifests/${reference}`, manifest);
  server.documents.set(`/v2/${name}/blobs/${image.id}`, { body: image.config });
  for (const layer of image.layers) server.documents.set(`/v2/${name}/blobs/${layer.digest}`, { body: layer.blob });
}

const typedPull = (name: string): Promise<PullSubscription> =>
  harness.pulls.pull(
    { reference: parseReference(`${server.host}/${name}:latest`), platform: undefined, credentials: undefined },
    new AbortController().signal,
    'typed',
  );

async function recordsOf(subscription: AsyncIterable<string>): Promise<TypedRecord[]> {
  return (await linesOf(subscription)) as unknown as TypedRecord[];
}

const FINAL = ['cached', 'done', 'failed'];

/** @param isLate it may have missed what came before. */
function checkTyped(records: readonly TypedRecord[], image: BuiltImage, where: string): void {
  const pulls = records.filter(({ kind }) => kind === 'pull');
  assert.deepEqual(pulls.map(({ phase }) => phase).slice(0, -1), ['resolve'], where);
  const last = records.at(-1);
  assert.ok(last?.kind === 'pull' && ['done', 'failed'].includes(last.phase), where);
  assert.equal(pulls[0]?.layers, image.layers.length, where);
  assert.equal(
    pulls[0]?.total,
    image.layers.reduce((sum, { blob }) => sum + blob.length, 0),
    where,
  );
  let sum = 0;
  image.layers.forEach(({ digest, blob }, index) => {
    const own = records.filter(({ kind, layer }) => kind === 'layer' && layer === index);
    let current = 0;
    for (const record of own) {
      assert.equal(record.digest, digest, where);
      assert.equal(record.total, blob.length, where);
      assert.ok(
        (record.current ?? -1) >= current && (record.current ?? 0) <= blob.length,
        `${where}: ${JSON.stringify(own)}`,
      );
      current = record.current ?? 0;
    }
    assert.deepEqual(
      own
        .map(({ phase }) => FINAL.includes(phase))
        .slice(0, -1)
        .filter(Boolean),
      [],
      `${where}: one final record`,
    );
    assert.ok(FINAL.includes(own.at(-1)?.phase ?? ''), `${where}: ${JSON.stringify(own.at(-1))}`);
    sum += current;
  });
  if (last.phase === 'done') assert.equal(sum, pulls[0]?.total, where);
  else
    assert.ok(
      (last.error?.message ?? '') !== '' && records.some(({ phase, kind }) => kind === 'layer' && phase === 'failed'),
      where,
    );
}

function checkClassic(lines: readonly Line[], image: BuiltImage, where: string): void {
  const failed = lines.at(-1)?.errorDetail !== undefined;
  assert.ok(failed || lines.at(-1)?.status?.startsWith('Status: ') === true, where);
  for (const { digest, blob } of image.layers) {
    if (image.layers.filter((other) => other.digest === digest).length > 1) continue;
    const own = lines.filter(({ id }) => id === digest.slice(7, 19));
    const finals = own.filter(({ status }) => status === 'Pull complete' || status === 'Already exists');
    assert.ok(finals.length === 1 || failed || own.length === 0, `${where}: ${JSON.stringify(own)}`);
    if (!failed && own.length > 0) assert.equal(own.at(-1), finals[0], where);
    let current = 0;
    for (const { status, progressDetail } of own) {
      if (status !== 'Downloading') continue;
      assert.ok(
        (progressDetail?.current ?? -1) >= current &&
          (progressDetail?.current ?? 0) <= blob.length &&
          progressDetail?.total === blob.length,
        where,
      );
      current = progressDetail?.current ?? 0;
    }
    if (own.some(({ status }) => status === 'Pull complete'))
      assert.equal(current, blob.length, `${where}: ${JSON.stringify(own)}`);
  }
}

/** Pulls with random faults. The long run: PROGRESS_ROUNDS=1000. */
const ROUNDS = Number(process.env['PROGRESS_ROUNDS'] ?? 20);
/** The first rounds have each outcome with every seed: a pull that ends, one with its layers, one cut, one broken. */
const FIRST_ROUNDS = [
  { layers: [0, 1], cut: 0, broken: false },
  { layers: [0, 1, 2], cut: 0, broken: false },
  { layers: [3, 4], cut: 1, broken: false },
  { layers: [5], cut: 0, broken: true },
];

test(
  'numbers only grow, every layer ends once, and sums are those of the manifest, whatever happens to the pull',
  { timeout: 600_000 },
  async () => {
    const seed = Number(process.env['PROGRESS_SEED'] ?? Date.now() % 1_000_000);
    const below = randomNumbers(seed);
    const chance = (percent: number): boolean => below(100) < percent;
    const outcomes = { done: 0, failed: 0, retried: 0, cached: 0 };
    for (let round = 0; round < ROUNDS; round++) {
      const where = `seed ${seed}, round ${round}`;
      const first = FIRST_ROUNDS[round];
      const chosen = first?.layers ?? Array.from({ length: below(6) }, () => below(pool.length));
      const layers = chosen.map((at) => pool[at] as BuiltLayer);
      const image = buildImage({ layers, config: { Env: [`ROUND=${round}`] } });
      const name = `r${round}`;
      publish(image, name);
      // The downloads of some blobs are cut, some fail for good, some have another content.
      const random = { cut: chance(40) ? below(4) : 0, broken: chance(10), lie: chance(10) };
      const { cut, broken, lie } = first === undefined ? random : { ...first, lie: false };
      const cuts = new Map<string, number>();
      server.intercept = (request, response) => {
        const path = request.url ?? '';
        const body = server.documents.get(path)?.body;
        if (!body || !path.includes('/blobs/') || path.endsWith(image.id)) return false;
        if (broken) return (response.writeHead(500).end(), true);
        if (lie) return (response.writeHead(200).end(Buffer.alloc(body.length, 1)), true);
        const count = cuts.get(path) ?? 0;
        if (count >= cut) return false;
        cuts.set(path, count + 1);
        const from = Number(/\d+/.exec(request.headers.range ?? '0')?.[0]);
        response.writeHead(from > 0 ? 206 : 200, {
          'content-length': body.length - from,
          ...(from > 0 ? { 'content-range': `bytes ${from}-${body.length - 1}/${body.length}` } : {}),
        });
        response.write(body.subarray(from, from + ((body.length - from) >> 1)), () =>
          setTimeout(() => response.destroy(), 5),
        );
        return true;
      };
      const [typed, classic] = await Promise.all([typedPull(name), harness.start(`${server.host}/${name}`)]);
      const reading = [recordsOf(typed), linesOf(classic)] as const;
      await new Promise((resolve) => setTimeout(resolve, below(20)));
      const late = await typedPull(name);
      const [records, lines, lateRecords] = await Promise.all([...reading, recordsOf(late)]);
      checkTyped(records, image, where);
      checkTyped(lateRecords, image, `${where}, late`);
      checkClassic(lines, image, where);
      outcomes[records.at(-1)?.phase === 'done' ? 'done' : 'failed']++;
      if (records.some(({ retry }) => retry !== undefined)) outcomes.retried++;
      if (records.some(({ phase }) => phase === 'cached')) outcomes.cached++;
      if (first === undefined && chance(50))
        for (const stored of harness.images.list()) await harness.images.delete(stored.id);
    }
    assert.ok(
      Object.values(outcomes).every((count) => count > 0),
      `seed ${seed}: ${JSON.stringify(outcomes)}`,
    );
  },
);

test('a record says where from, what failed and when it goes on', async () => {
  const image = buildImage({ layers: [generatedLayer({ root: 'x', bytes: 600_000, files: 3, seed: 77 })] });
  publish(image, 'told');
  const blob = `/v2/told/blobs/${image.layers[0]?.digest}`;
  server.intercept = (request, response, nth) => {
    if (request.url !== blob || nth > 1) return false;
    response.writeHead(502).end();
    return true;
  };
  const records = await recordsOf(await typedPull('told'));
  const retry = records.find((record) => record.retry !== undefined);
  assert.match(retry?.retry?.reason ?? '', /502/);
  assert.equal(retry?.endpoint, server.url);
  assert.ok(records.some(({ phase, endpoint }) => phase === 'download' && endpoint === server.url));
  assert.equal(records[0]?.endpoint?.replace(/^https/, 'http'), server.url);
});

test('a thousand readers of one pull all see it to its end', { timeout: 300_000 }, async () => {
  const image = buildImage({
    layers: [1, 2, 3].map((seed) => generatedLayer({ root: `k${seed}`, bytes: 1 << 20, files: 20, seed: seed + 90 })),
  });
  publish(image, 'crowd');
  const all = await Promise.all(
    Array.from({ length: 1000 }, (_, index) =>
      index % 2 === 0 ? typedPull('crowd') : harness.start(`${server.host}/crowd`),
    ),
  );
  const ends = await Promise.all(all.map(linesOf));
  ends.forEach((lines, index) =>
    index % 2 === 0
      ? checkTyped(lines as unknown as TypedRecord[], image, String(index))
      : checkClassic(lines, image, String(index)),
  );
  // A transfer that a busy machine slows down may go on over further connections, but it begins once.
  const begun = server.requests.filter((_, index) => !/^bytes=[1-9]/.test(server.headers[index]?.range ?? ''));
  for (const { digest } of image.layers) assert.equal(begun.filter((line) => line.endsWith(digest)).length, 1);
});

test('the form is chosen by the Accept header', async (context) => {
  const cleanup = new Cleanup();
  context.after(() => cleanup.run());
  const engine = await startEngine(cleanup);
  publish(buildImage({ layers: pool.slice(0, 2) }), 'chosen');
  for (const [accept, type] of [
    ['application/vnd.engine.progress+json', 'application/vnd.engine.progress+json'],
    ['*/*', 'application/json'],
  ] as const) {
    const reply = await open(engine.socketPath, 'POST', `/images/create?fromImage=${server.host}/chosen&tag=latest`, {
      headers: { Accept: accept },
    });
    assert.equal(reply.headers['content-type'], type);
    let text = '';
    for await (const chunk of reply.message) text += String(chunk);
    assert.equal(text.includes('"kind":"pull"'), type !== 'application/json');
  }
});
