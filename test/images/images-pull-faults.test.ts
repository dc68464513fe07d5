/** Pulls from registries that lie, fail, refuse and stay silent: the right error, and nothing half made is left. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, test } from 'node:test';
import type { ErrorKind } from '../../src/errors/engine-error.js';
import { pruneImages } from '../../src/images/prune.js';
import { type FaultyServer, startFaultyServer } from '../support/faulty-registry.js';
import { buildImage, buildLayer, layerOfTar, tarOf } from '../support/image-builder.js';
import { type Line, linesOf, type PullHarness } from '../support/pull-harness.js';
import { layers, PullScene, refused } from '../support/pull-scene.js';

const scene = new PullScene();
let server: FaultyServer;
let harness: PullHarness;
beforeEach(() => {
  ({ server, harness } = scene);
});

/** Pulls what fails after its first byte; nothing may be left. */
async function failsLate(pattern: RegExp, name = 'app'): Promise<Line[]> {
  const lines = await linesOf(await harness.start(`${server.host}/${name}`));
  const last = lines.at(-1);
  assert.match(last?.error ?? '', pattern);
  assert.equal(last?.errorDetail?.message, last?.error);
  await scene.settled();
  assert.deepEqual(harness.layers.chainIds, []);
  assert.equal(harness.images.list().length, 0);
  return lines;
}

test('a layer with a wrong digest fails the pull', async () => {
  const image = buildImage({ layers: layers() });
  scene.publish(image);
  const second = image.layers[1];
  assert.ok(second);
  server.documents.set(`/v2/app/blobs/${second.digest}`, { body: Buffer.alloc(second.blob.length, 7) });
  await failsLate(new RegExp(`filesystem layer verification failed for digest ${second.digest}`));
});

test('a config with a wrong digest is refused before the first byte', async () => {
  const image = buildImage({ layers: layers() });
  scene.publish(image);
  server.documents.set(`/v2/app/blobs/${image.id}`, { body: Buffer.alloc(image.config.length, 0x20) });
  await assert.rejects(harness.start(`${server.host}/app`), refused('data-loss', /image config verification failed/));
});

test('a manifest that is not what its digest says is refused', async () => {
  const image = buildImage({ layers: layers() });
  scene.publish(image);
  server.documents.set(`/v2/app/manifests/${image.digest}`, {
    body: buildImage({ layers: [] }).manifest,
    type: image.mediaType,
  });
  await assert.rejects(
    harness.start(`${server.host}/app`),
    refused('data-loss', /manifest verification failed for digest/),
  );
});

test('diff IDs that do not fit the manifest are refused', async () => {
  const image = buildImage({ layers: layers() });
  const fewer = buildImage({ layers: image.layers.slice(1) });
  scene.publish({
    ...image,
    config: fewer.config,
    id: fewer.id,
    manifest: Buffer.from(
      image.manifest
        .toString()
        .replace(image.id, fewer.id)
        .replace(`"size":${image.config.length}`, `"size":${fewer.config.length}`),
    ),
  });
  server.documents.delete(`/v2/app/manifests/${image.digest}`);
  server.intercept = (request, response) => {
    if (request.method !== 'HEAD') return false;
    response.writeHead(404).end();
    return true;
  };
  await assert.rejects(
    harness.start(`${server.host}/app`),
    refused('data-loss', /layers from manifest don't match image configuration/),
  );
});

test('things that are not images are refused', async () => {
  const image = buildImage({ layers: layers() });
  const edit = async (from: RegExp | string, to: string, kind: ErrorKind, message: RegExp): Promise<void> => {
    const body = Buffer.from(image.manifest.toString().replace(from, to));
    server.documents.set('/v2/odd/manifests/latest', { body, type: image.mediaType });
    await assert.rejects(harness.start(`${server.host}/odd`), refused(kind, message));
  };
  await edit(
    'application/vnd.docker.container.image.v1+json',
    'application/vnd.docker.plugin.v1+json',
    'invalid',
    /Encountered remote "application\/vnd.docker.plugin.v1\+json"\(plugin\) when fetching/,
  );
  await edit(
    'application/vnd.docker.image.rootfs.diff.tar.gzip',
    'application/x-rar',
    'invalid',
    /unsupported media type application\/x-rar/,
  );
  await edit('"schemaVersion":2', '"schemaVersion":1', 'invalid', /schema 1 support is disabled/);
  await edit('"layers":[', '"layers":"x","no":[', 'data-loss', /layers is not an array/);
  await edit('{', '[', 'data-loss', /not JSON/);
  await edit('sha256:', 'sha512:', 'data-loss', /unsupported digest/);
});

test('a truncated blob is resumed; one that stays truncated fails', async () => {
  const image = buildImage({ layers: layers() });
  scene.publish(image);
  let cuts = 0;
  server.intercept = (request, response) => {
    if (!request.url?.includes('/blobs/') || request.url.includes(image.id) || cuts++ > 2) return false;
    const body = server.documents.get(request.url)?.body ?? Buffer.alloc(0);
    response.writeHead(200, { 'content-length': body.length });
    response.write(body.subarray(0, body.length >> 1), () => setTimeout(() => response.destroy(), 20));
    return true;
  };
  const lines = await linesOf(await harness.start(`${server.host}/app`));
  assert.match(lines.at(-1)?.status ?? '', /Downloaded newer image/);
  assert.ok(lines.some(({ status }) => /^Retrying in \d+ seconds?$/.test(status ?? '')));
});

test('server errors that do not go away fail the pull with their text', async () => {
  scene.publish(buildImage({ layers: layers() }));
  server.intercept = (request, response) => {
    if (!/blobs/.test(request.url ?? '') || server.requests.filter((line) => line.includes('/blobs/')).length === 1)
      return false;
    response.writeHead(500).end('<html>');
    return true;
  };
  await failsLate(/received unexpected HTTP status: 500 Internal Server Error/);
});

test('errors of the manifest request become the status of the pull', async () => {
  const table: readonly (readonly [number, string, ErrorKind, RegExp])[] = [
    [404, 'MANIFEST_UNKNOWN', 'not-found', /^manifest for .* not found: manifest unknown: m$/],
    [404, 'NAME_UNKNOWN', 'not-found', /^repository .*\/app not found: name unknown: m$/],
    [
      403,
      'DENIED',
      'not-found',
      /^pull access denied for .*\/app, repository does not exist or may require 'docker login': denied: m$/,
    ],
    [401, 'UNAUTHORIZED', 'unauthorized', /^unauthorized: m$/],
    [500, 'UNKNOWN', 'internal', /^unknown: m$/],
  ];
  for (const [status, code, kind, message] of table) {
    server.intercept = (request, response) => {
      if (!request.url?.includes('/manifests/')) return false;
      response
        .writeHead(status, { 'content-type': 'application/json' })
        .end(JSON.stringify({ errors: [{ code, message: 'm' }] }));
      return true;
    };
    await assert.rejects(harness.start(`${server.host}/app`), refused(kind, message), code);
  }
});

test('a registry that asks for silence gets it, from every pull', async () => {
  scene.publish(buildImage({ layers: layers() }));
  scene.publish(buildImage({ layers: layers().slice(1) }), 'other');
  const limited = { at: 0 };
  const early: string[] = [];
  server.intercept = (request, response) => {
    if (limited.at !== 0 && Date.now() - limited.at < 950) early.push(request.url ?? '');
    if (limited.at !== 0 || !request.url?.includes('/manifests/')) return false;
    limited.at = Date.now();
    response
      .writeHead(429, { 'retry-after': '1' })
      .end(JSON.stringify({ errors: [{ code: 'TOOMANYREQUESTS', message: 'slow down' }] }));
    return true;
  };
  const first = harness.start(`${server.host}/app`);
  while (limited.at === 0) await new Promise((resolve) => setTimeout(resolve, 5));
  await new Promise((resolve) => setTimeout(resolve, 50));
  const second = harness.start(`${server.host}/other`);
  for (const pull of await Promise.all([first, second]))
    assert.match((await linesOf(pull)).at(-1)?.status ?? '', /Downloaded newer image/);
  assert.deepEqual(early, []);
});

test('a wish for a very long silence fails the pull at once', async () => {
  server.intercept = (request, response) => {
    if (!request.url?.includes('/manifests/')) return false;
    response.writeHead(429, { 'retry-after': '21600' }).end();
    return true;
  };
  await assert.rejects(harness.start(`${server.host}/app`), refused('unavailable', /toomanyrequests/));
});

test('a registry that never answers is given up', async () => {
  scene.publish(buildImage({ layers: layers() }));
  server.intercept = (request) => request.url?.includes('/manifests/') ?? false;
  harness = await scene.restart({ limits: { connectMs: 60_000, responseMs: 500, idleMs: 60_000 } });
  await assert.rejects(harness.start(`${server.host}/app`), refused('internal', /timeout while awaiting the response/));
});

test('tars that lead out of their layer, and links to nowhere, leave nothing', async () => {
  for (const [entry, name] of [
    [{ path: '../../../../escaped', content: 'x' }, 'dots'],
    [{ path: '/escaped', content: 'x' }, 'absolute'],
    [{ path: 'hard', type: 'link', target: '../../../etc/passwd' }, 'hard'],
  ] as const) {
    scene.publish(buildImage({ layers: [buildLayer([entry])] }), name);
    await linesOf(await harness.start(`${server.host}/${name}`));
    assert.ok(!existsSync('/escaped') && !existsSync(join(harness.dir, 'escaped')));
  }
});

test('a tar that breaks off fails with a reason', async () => {
  const whole = tarOf([{ path: 'a', content: Buffer.alloc(5000) }]);
  scene.publish(buildImage({ layers: [layerOfTar(whole.subarray(0, 3000))] }));
  await failsLate(/unexpected EOF/);
});

test('mirrors are tried in order, for the default registry only, without the credentials of the user', async () => {
  const broken = await startFaultyServer();
  broken.intercept = (_, response) => {
    response.writeHead(500).end();
    return true;
  };
  harness = await scene.restart({
    rules: () => ({ insecure: [], mirrors: [broken.url, `${server.url}/`], certsDir: '/nonexistent' }),
  });
  try {
    scene.publish(buildImage({ layers: layers() }), 'library/app');
    const lines = await linesOf(await harness.start('app', { credentials: { username: 'me', password: 'secret' } }));
    assert.equal(lines.at(-1)?.status, 'Status: Downloaded newer image for app:latest');
    assert.deepEqual(harness.images.resolve('app').repoTags, ['app:latest']);
    assert.ok(broken.requests.length > 0);
    assert.ok([...broken.headers, ...server.headers].every(({ authorization }) => authorization === undefined));
    await assert.rejects(harness.start('127.0.0.1:1/library/app'), refused('internal', /connection refused/));
  } finally {
    await broken.stop();
  }
});

test('pulls do not fail while everything unused is pruned all the time', async () => {
  const image = buildImage({ layers: layers() });
  scene.publish(image);
  const removal = {
    store: harness.images,
    layers: harness.layers,
    users: () => [],
    emit: () => undefined,
    layerBytes: async () => new Map(),
  };
  const ended = new AbortController();
  const pruning = (async () => {
    while (!ended.signal.aborted) {
      await pruneImages(
        removal,
        { danglingOnly: false, untilMs: undefined, matchesLabels: () => true },
        new AbortController().signal,
      );
      await new Promise((resolve) => setImmediate(resolve));
    }
  })();
  for (let round = 0; round < 10; round++) {
    assert.match(
      (await linesOf(await harness.start(`${server.host}/app`))).at(-1)?.status ?? '',
      /Downloaded newer image|up to date/,
    );
  }
  ended.abort();
  await pruning;
});
