/** The worker task that brings one layer from a registry into its directory, against servers that misbehave. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { lstat, mkdir, mkdtemp, readFile, readlink, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach, before, beforeEach, test } from 'node:test';
import { MessageChannel, type MessagePort } from 'node:worker_threads';
import { gzipSync } from 'node:zlib';
import { isEngineError } from '../../src/errors/engine-error.js';
import {
  fetchLayer,
  type FetchLayerInput,
  type FetchLayerOutput,
  type FetchLayerReport,
} from '../../src/workers/fetch-layer.js';
import type { LinkReport } from '../../src/workers/task-link.js';
import {
  type BuiltLayer,
  buildLayer,
  everyFileType,
  generatedBytes,
  layerOfTar,
  sha256,
  tarOf,
} from '../support/image-builder.js';
import { type FaultyServer, startFaultyServer } from '../support/faulty-registry.js';

let server: FaultyServer;
let root: string;
let runs = 0;

before(async () => {
  root = await mkdtemp(join(tmpdir(), 'engined-fetch-'));
});
after(() => rm(root, { recursive: true, force: true }));
beforeEach(async () => {
  server = await startFaultyServer();
});
afterEach(() => server.stop());

interface Run {
  readonly result: Promise<FetchLayerOutput>;
  readonly reports: (FetchLayerReport | LinkReport)[];
  readonly port: MessagePort;
  readonly diffDir: string;
}

async function start(layer: BuiltLayer, overrides: Partial<FetchLayerInput> = {}): Promise<Run> {
  const dir = join(root, String(runs++));
  const diffDir = join(dir, 'diff');
  await mkdir(diffDir, { recursive: true });
  const path = `/v2/r/blobs/${layer.digest}`;
  if (!server.documents.has(path)) server.documents.set(path, { body: layer.blob });
  const { port1, port2 } = new MessageChannel();
  const reports: (FetchLayerReport | LinkReport)[] = [];
  port1.on('message', (report: FetchLayerReport | LinkReport) => reports.push(report));
  const result = fetchLayer({
    source: { url: server.url + path, headers: { authorization: 'Bearer one' }, tls: { verify: true } },
    limits: { connectMs: 60_000, responseMs: 60_000, idleMs: 60_000 },
    digest: layer.digest,
    sizeBytes: layer.blob.length,
    diffId: layer.diffId,
    maxTarBytes: 1 << 30,
    maxAttempts: 5,
    retryDelayMs: 10,
    diffDir,
    tarSplitPath: join(dir, 'tar-split'),
    partial: undefined,
    port: port2,
    ...overrides,
  });
  result.catch(() => undefined).finally(() => port1.close());
  return { result, reports, port: port1, diffDir };
}

const BIG = buildLayer([{ path: 'big', content: generatedBytes(3 << 20, 7) }]);

for (const compression of ['gzip', 'zstd', 'none'] as const) {
  test(`a ${compression} layer is verified and extracted in one pass`, async () => {
    const { result, diffDir } = await start(buildLayer(everyFileType(), compression));
    const sizes = everyFileType().map(({ type, content }) =>
      type === undefined ? Buffer.byteLength(content ?? '') : 0,
    );
    assert.equal(
      (await result).sizeBytes,
      sizes.reduce((sum, size) => sum + size),
    );
    assert.equal(await readFile(join(diffDir, 'types/plain'), 'utf8'), 'plain\n');
    assert.equal(await readlink(join(diffDir, 'types/soft')), 'plain');
    const plain = await lstat(join(diffDir, 'types/plain'));
    assert.deepEqual([plain.uid, plain.gid, plain.nlink, plain.mtimeMs], [1, 2, 2, 1_600_000_002_000]);
  });
}

test('a broken download goes on where it stopped', async () => {
  const layer = BIG;
  server.intercept = (request, response, nth) => {
    if (nth > 3) return false;
    const from = Number(/\d+/.exec(request.headers.range ?? '0')?.[0]);
    const length = layer.blob.length - from;
    response.writeHead(from > 0 ? 206 : 200, {
      'content-length': length,
      'content-range': `bytes ${from}-${layer.blob.length - 1}/${layer.blob.length}`,
    });
    response.write(layer.blob.subarray(from, from + 300_000), () => setTimeout(() => response.destroy(), 20));
    return true;
  };
  const { result, diffDir, reports } = await start(layer);
  await result;
  assert.equal(sha256(await readFile(join(diffDir, 'big'))), sha256(generatedBytes(3 << 20, 7)));
  const ranges = server.headers.map(({ range }) => Number(/\d+/.exec(range ?? '0')?.[0]));
  assert.ok(
    ranges.length === 4 && ranges.every((from, index) => index === 0 || from > (ranges[index - 1] ?? 0)),
    String(ranges),
  );
  assert.ok(reports.some(({ type }) => type === 'retrying'));
});

test('a server without ranges starts over, and nothing is processed twice', async () => {
  const layer = BIG;
  server.intercept = (_, response, nth) => {
    response.writeHead(200, { 'content-length': layer.blob.length });
    if (nth === 1) response.write(layer.blob.subarray(0, 200_000), () => setTimeout(() => response.destroy(), 20));
    else response.end(layer.blob);
    return true;
  };
  await (
    await start(layer)
  ).result;
  assert.equal(server.requests.length, 2);
});

async function failsWith(run: Run, kind: string, pattern: RegExp): Promise<void> {
  await assert.rejects(
    run.result,
    (error) => isEngineError(error) && error.kind === kind && pattern.test(error.message),
    String(pattern),
  );
}

test('a wrong digest is found, whatever the bytes look like', async () => {
  const layer = BIG;
  const path = `/v2/r/blobs/${layer.digest}`;
  const changed = Buffer.from(layer.blob);
  changed.writeUInt8(changed.readUInt8(changed.length >> 1) ^ 1, changed.length >> 1);
  for (const body of [changed, generatedBytes(layer.blob.length, 99), Buffer.alloc(layer.blob.length)]) {
    server.documents.set(path, { body });
    await failsWith(await start(layer), 'data-loss', /filesystem layer verification failed for digest sha256:/);
  }
  assert.equal(server.requests.length, 3, 'lies are not retried');
});

test('a blob that is longer than declared is cut off', async () => {
  const layer = BIG;
  const path = `/v2/r/blobs/${layer.digest}`;
  server.documents.set(path, { body: Buffer.concat([layer.blob, Buffer.alloc(10)]) });
  await failsWith(await start(layer), 'data-loss', /its manifest declares/);
  server.intercept = (_, response) => {
    response.writeHead(200, { 'transfer-encoding': 'chunked' });
    response.write(layer.blob);
    response.write(Buffer.alloc(1000));
    return true;
  };
  await failsWith(await start(layer), 'data-loss', /longer than the \d+ bytes/);
});

test('a blob that stays too short fails after its attempts', async () => {
  const layer = BIG;
  server.documents.set(`/v2/r/blobs/${layer.digest}`, { body: layer.blob.subarray(0, 1000) });
  server.intercept = (_, response, nth) => {
    if (nth > 1) response.writeHead(206, { 'content-range': 'bytes 1000-999/1000', 'content-length': 0 }).end();
    return nth > 1;
  };
  await failsWith(await start(layer), 'internal', /unexpected EOF/);
  assert.equal(server.requests.length, 5);
});

test('a diff ID that is not the tar is refused', async () => {
  await failsWith(await start({ ...BIG, diffId: sha256('something else') }), 'data-loss', /does not have the diff ID/);
});

test('a small blob cannot expand without end', async () => {
  const tar = Buffer.concat([tarOf([{ path: 'zeros', content: Buffer.alloc(20 << 20) }])]);
  const run = await start(layerOfTar(tar), { maxTarBytes: 1 << 20 });
  await failsWith(run, 'invalid', /larger than 1048576 bytes/);
});

test('damaged compression is told from a lying registry', async () => {
  const blob = gzipSync(Buffer.alloc(1 << 16)).subarray(0, 60);
  await failsWith(
    await start({ blob, digest: sha256(blob), diffId: sha256('x'), compression: 'gzip', tarSize: 0 }),
    'data-loss',
    /decompressing/,
  );
});

test('names that lead out of the layer never leave its directory', async () => {
  for (const entry of [
    { path: '../escape-dots', content: 'x' },
    { path: '/tmp/../../../escape-absolute', content: 'x' },
    { path: 'hard', type: 'link', target: '../../../../etc/passwd' },
  ] as const) {
    const run = await start(buildLayer([entry]));
    await run.result.catch((error: unknown) => assert.ok(isEngineError(error)));
    assert.ok(!existsSync(join(root, 'escape-dots')) && !existsSync('/escape-absolute'));
  }
  const throughLink = await start(
    buildLayer([
      { path: 'out', type: 'symlink', target: root },
      { path: 'out/escape-link', content: 'x' },
    ]),
  );
  await throughLink.result.catch((error: unknown) => assert.ok(isEngineError(error)));
  assert.ok(!existsSync(join(root, 'escape-link')));
});

test('refused credentials are replaced without losing what was fetched', async () => {
  const layer = BIG;
  server.intercept = (request, response, nth) => {
    if (nth === 1) {
      response.writeHead(200, { 'content-length': layer.blob.length });
      response.write(layer.blob.subarray(0, 200_000), () => setTimeout(() => response.destroy(), 20));
      return true;
    }
    if (request.headers.authorization === 'Bearer two') return false;
    response.writeHead(401, { 'www-authenticate': 'Bearer realm="x"' }).end();
    return true;
  };
  const run = await start(layer);
  run.port.on('message', (report: FetchLayerReport | LinkReport) => {
    if (report.type !== 'refused') return;
    const value = {
      url: `${server.url}/v2/r/blobs/${layer.digest}`,
      headers: { authorization: 'Bearer two' },
      tls: { verify: true },
    };
    run.port.postMessage({ type: 'source', source: { ok: true, value } }, []);
  });
  await run.result;
  assert.match(server.headers.at(-1)?.range ?? '', /^bytes=[1-9]/);
});

test('the main thread may end a refused download with an error of its choice', async () => {
  server.intercept = (_, response) => {
    response.writeHead(429, { 'retry-after': '1' }).end();
    return true;
  };
  const run = await start(BIG);
  run.port.on('message', (report: FetchLayerReport | LinkReport) => {
    const source = { ok: false, kind: 'unavailable', message: 'too many', code: 'X', details: {}, stack: undefined };
    if (report.type === 'refused') run.port.postMessage({ type: 'source', source }, []);
  });
  await failsWith(run, 'unavailable', /too many/);
});

test('silence ends an attempt, in the head and in the body', async () => {
  const layer = BIG;
  const limits = { connectMs: 60_000, responseMs: 500, idleMs: 500 };
  server.intercept = (_, response, nth) => {
    if (nth === 2) response.writeHead(200, { 'content-length': layer.blob.length }).write(layer.blob.subarray(0, 1000));
    return nth <= 2;
  };
  // On a busy machine another attempt may seem silent.
  await (
    await start(layer, { limits, maxAttempts: 20 })
  ).result;
  assert.ok(server.requests.length >= 3);
  server.intercept = () => true;
  await failsWith(await start(layer, { limits, maxAttempts: 1 }), 'internal', /timeout while awaiting the response/);
});

test('server errors are retried, others are not', async () => {
  const layer = BIG;
  server.intercept = (_, response, nth) => {
    if (nth < 3) response.writeHead(502).end('<html>');
    return nth < 3;
  };
  await (
    await start(layer)
  ).result;
  assert.equal(server.requests.length, 3);
  server.intercept = (_, response) => {
    response.writeHead(403).end();
    return true;
  };
  await failsWith(await start(layer), 'internal', /403/);
  assert.equal(server.requests.length, 4);
});

test('an order to cancel ends the task at once', async () => {
  server.intercept = () => true;
  const run = await start(BIG);
  setTimeout(() => run.port.postMessage({ type: 'cancel' }, []), 50);
  const started = Date.now();
  await failsWith(run, 'cancelled', /not wanted/);
  assert.ok(Date.now() - started < 30_000, 'not when the answer is late');
});

test('a redirect to another host does not carry the credentials along', async () => {
  const layer = BIG;
  const other = await startFaultyServer();
  try {
    other.documents.set('/blob', { body: layer.blob });
    server.intercept = (_, response) => {
      response.writeHead(307, { location: `${other.url}/blob` }).end();
      return true;
    };
    await (
      await start(layer)
    ).result;
    assert.equal(server.headers[0]?.authorization, 'Bearer one');
    assert.equal(other.headers[0]?.authorization, undefined);
  } finally {
    await other.stop();
  }
});
