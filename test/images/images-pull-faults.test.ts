/** Pulls from registries that lie, fail, refuse and stay silent: the right error, and nothing half made is left. */
import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';
import { isEngineError, type ErrorKind } from '../../src/errors/engine-error.js';
import { pruneImages } from '../../src/images/prune.js';
import { type FaultyServer, startFaultyServer } from '../support/faulty-registry.js';
import {
  type BuiltImage,
  buildImage,
  type BuiltLayer,
  buildLayer,
  generatedLayer,
  layerOfTar,
  tarOf,
} from '../support/image-builder.js';
import { type Line, linesOf, type PullHarness, startPullHarness } from '../support/pull-harness.js';

let server: FaultyServer;
let harness: PullHarness;

beforeEach(async () => {
  server = await startFaultyServer();
  harness = await startPullHarness();
});
afterEach(async () => {
  await settled();
  assert.deepEqual(harness.errors, []);
  assert.equal(harness.layers.staged, 0, 'nothing stays staged');
  assert.deepEqual(
    (await readdir(join(harness.dir, 'layers'))).filter((name) => name.startsWith('staging')),
    [],
  );
  await harness.stop();
  await server.stop();
});

async function settled(): Promise<void> {
  for (let tries = 0; harness.pulls.collection.children.size + harness.transfers.size > 0; tries++) {
    assert.ok(tries < 100, 'all transfers end');
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

const layers = (): BuiltLayer[] =>
  [1, 2, 3].map((seed) => generatedLayer({ root: `d${seed}`, bytes: 400_000, files: 10, seed }));

function publish(image: BuiltImage, name = 'app', tag = 'latest', on = server): void {
  const manifest = { body: image.manifest, type: image.mediaType, headers: { 'docker-content-digest': image.digest } };
  on.documents.set(`/v2/${name}/manifests/${tag}`, manifest);
  on.documents.set(`/v2/${name}/manifests/${image.digest}`, manifest);
  on.documents.set(`/v2/${name}/blobs/${image.id}`, { body: image.config });
  for (const layer of image.layers) on.documents.set(`/v2/${name}/blobs/${layer.digest}`, { body: layer.blob });
}

const refused = (kind: ErrorKind, pattern: RegExp) => (error: unknown) => {
  assert.ok(isEngineError(error), String(error));
  assert.equal(error.kind, kind, error.message);
  assert.match(error.message, pattern);
  return true;
};

/** Pulls what fails after its first byte; nothing may be left. */
async function failsLate(pattern: RegExp, name = 'app'): Promise<Line[]> {
  const lines = await linesOf(await harness.start(`${server.host}/${name}`));
  const last = lines.at(-1);
  assert.match(last?.error ?? '', pattern);
  assert.equal(last?.errorDetail?.message, last?.error);
  await settled();
  assert.deepEqual(harness.layers.chainIds, []);
  assert.equal(harness.images.list().length, 0);
  return lines;
}

test('a layer with a wrong digest fails the pull', async () => {
  const image = buildImage({ layers: layers() });
  publish(image);
  const second = image.layers[1];
  assert.ok(second);
  server.documents.set(`/v2/app/blobs/${second.digest}`, { body: Buffer.alloc(second.blob.length, 7) });
  await failsLate(new RegExp(`filesystem layer verification failed for digest ${second.digest}`));
});

test('a config with a wrong digest is refused before the first byte', async () => {
  const image = buildImage({ layers: layers() });
  publish(image);
  server.documents.set(`/v2/app/blobs/${image.id}`, { body: Buffer.alloc(image.config.length, 0x20) });
  await assert.rejects(harness.start(`${server.host}/app`), refused('data-loss', /image config verification failed/));
});

test('a manifest that is not what its digest says is refused', async () => {
  const image = buildImage({ layers: layers() });
  publish(image);
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
  publish({
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
  publish(image);
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
  publish(buildImage({ layers: layers() }));
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
  publish(buildImage({ layers: layers() }));
  publish(buildImage({ layers: layers().slice(1) }), 'other');
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
  publish(buildImage({ layers: layers() }));
  server.intercept = (request) => request.url?.includes('/manifests/') ?? false;
  await assert.rejects(harness.start(`${server.host}/app`), refused('internal', /timeout while awaiting the response/));
});

test('tars that lead out of their layer, and links to nowhere, leave nothing', async () => {
  for (const [entry, name] of [
    [{ path: '../../../../escaped', content: 'x' }, 'dots'],
    [{ path: '/escaped', content: 'x' }, 'absolute'],
    [{ path: 'hard', type: 'link', target: '../../../etc/passwd' }, 'hard'],
  ] as const) {
    publish(buildImage({ layers: [buildLayer([entry])] }), name);
    await linesOf(await harness.start(`${server.host}/${name}`));
    assert.ok(!existsSync('/escaped') && !existsSync(join(harness.dir, 'escaped')));
  }
});

test('a tar that breaks off fails with a reason', async () => {
  const whole = tarOf([{ path: 'a', content: Buffer.alloc(5000) }]);
  publish(buildImage({ layers: [layerOfTar(whole.subarray(0, 3000))] }));
  await failsLate(/unexpected end of tar/);
});

/** A registry that wants tokens of a token server on the same port. */
function demandTokens(options: { readonly user?: string; readonly lifetimes?: number } = {}): {
  readonly issued: string[];
} {
  const issued: string[] = [];
  const uses = new Map<string, number>();
  server.intercept = (request, response) => {
    const url = new URL(request.url ?? '', server.url);
    if (url.pathname === '/token') {
      const expected = options.user === undefined ? undefined : `Basic ${Buffer.from(options.user).toString('base64')}`;
      if (request.headers.authorization !== expected && request.method === 'GET') {
        response
          .writeHead(401, { 'content-type': 'application/json' })
          .end(JSON.stringify({ details: 'incorrect username or password' }));
        return true;
      }
      const token = `t${issued.length}`;
      issued.push(`${request.method} ${url.searchParams.toString()}`);
      response
        .writeHead(200, { 'content-type': 'application/json' })
        .end(JSON.stringify(issued.length % 2 ? { token } : { access_token: token }));
      return true;
    }
    const token = request.headers.authorization?.replace('Bearer ', '');
    const used = uses.get(token ?? '') ?? 0;
    uses.set(token ?? '', used + 1);
    if (token !== undefined && used < (options.lifetimes ?? Infinity)) return false;
    response
      .writeHead(401, { 'www-authenticate': `Bearer realm="${server.url}/token",service="reg, with comma"` })
      .end();
    return true;
  };
  return { issued };
}

test('tokens are fetched once per scope and sent along', async () => {
  publish(buildImage({ layers: layers() }), 'ns/app');
  const { issued } = demandTokens();
  await linesOf(await harness.start(`${server.host}/ns/app`));
  assert.deepEqual(issued, ['GET service=reg%2C+with+comma&scope=repository%3Ans%2Fapp%3Apull']);
});

test('a token that runs out in the middle is renewed', async () => {
  publish(buildImage({ layers: layers() }));
  const { issued } = demandTokens({ lifetimes: 2 });
  const lines = await linesOf(await harness.start(`${server.host}/app`));
  assert.match(lines.at(-1)?.status ?? '', /Downloaded newer image/);
  assert.ok(issued.length >= 3);
});

test('user and password go to the token server only; wrong ones are unauthorized', async () => {
  publish(buildImage({ layers: layers() }));
  const { issued } = demandTokens({ user: 'me:secret' });
  await linesOf(await harness.start(`${server.host}/app`, { credentials: { username: 'me', password: 'secret' } }));
  assert.match(issued[0] ?? '', /account=me/);
  assert.ok(
    server.headers.every(
      ({ authorization }, index) => !authorization?.startsWith('Basic') || server.requests[index]?.includes('/token'),
    ),
  );
  await assert.rejects(
    harness.start(`${server.host}/app`, { credentials: { username: 'me', password: 'wrong' } }),
    refused('unauthorized', /incorrect username or password/),
  );
});

test('an identity token is exchanged by POST, a registry token passed through', async () => {
  publish(buildImage({ layers: layers() }));
  const { issued } = demandTokens();
  await linesOf(await harness.start(`${server.host}/app`, { credentials: { identityToken: 'refresh' } }));
  assert.match(issued[0] ?? '', /^POST/);
  await linesOf(await harness.start(`${server.host}/app`, { credentials: { registryToken: 'given' } }));
  assert.ok(server.headers.some(({ authorization }) => authorization === 'Bearer given'));
  assert.equal(issued.length, 1);
});

test('basic credentials are asked for by name when they are missing', async () => {
  publish(buildImage({ layers: layers() }));
  server.intercept = (request, response) => {
    if (request.headers.authorization === `Basic ${Buffer.from('me:secret').toString('base64')}`) return false;
    response.writeHead(401, { 'www-authenticate': 'Basic realm="r"' }).end();
    return true;
  };
  await assert.rejects(harness.start(`${server.host}/app`), refused('unauthorized', /no basic auth credentials/));
  await assert.rejects(
    harness.start(`${server.host}/app`, { credentials: { username: 'me', password: 'no' } }),
    refused('unauthorized', /authentication required/),
  );
  await linesOf(await harness.start(`${server.host}/app`, { credentials: { username: 'me', password: 'secret' } }));
});

test('a scope that the token lacks means that the image is not there for this user', async () => {
  server.intercept = (request, response) => {
    if (request.url?.startsWith('/token')) {
      response.writeHead(200).end('{"token":"t"}');
      return true;
    }
    response
      .writeHead(401, {
        'www-authenticate': `Bearer realm="${server.url}/token",service="s",scope="repository:app:pull",error="insufficient_scope"`,
      })
      .end();
    return true;
  };
  await assert.rejects(
    harness.start(`${server.host}/app`),
    refused(
      'not-found',
      /^pull access denied for .*\/app, repository does not exist or may require 'docker login': denied: /,
    ),
  );
});

test('mirrors are tried in order, for the default registry only, without the credentials of the user', async () => {
  await harness.stop();
  const broken = await startFaultyServer();
  broken.intercept = (_, response) => {
    response.writeHead(500).end();
    return true;
  };
  harness = await startPullHarness({
    rules: () => ({ insecure: [], mirrors: [broken.url, `${server.url}/`], certsDir: '/nonexistent' }),
  });
  try {
    publish(buildImage({ layers: layers() }), 'library/app');
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
  publish(image);
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
