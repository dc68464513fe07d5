/** Pulls from registries that want tokens or passwords. */
import assert from 'node:assert/strict';
import { beforeEach, test } from 'node:test';
import { type FaultyServer } from '../support/faulty-registry.js';
import { buildImage } from '../support/image-builder.js';
import { linesOf, type PullHarness } from '../support/pull-harness.js';
import { layers, PullScene, refused } from '../support/pull-scene.js';

const scene = new PullScene();
let server: FaultyServer;
let harness: PullHarness;
beforeEach(() => {
  ({ server, harness } = scene);
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
  scene.publish(buildImage({ layers: layers() }), 'ns/app');
  const { issued } = demandTokens();
  await linesOf(await harness.start(`${server.host}/ns/app`));
  assert.deepEqual(issued, ['GET service=reg%2C+with+comma&scope=repository%3Ans%2Fapp%3Apull']);
});

test('a token that runs out in the middle is renewed', async () => {
  scene.publish(buildImage({ layers: layers() }));
  const { issued } = demandTokens({ lifetimes: 2 });
  const lines = await linesOf(await harness.start(`${server.host}/app`));
  assert.match(lines.at(-1)?.status ?? '', /Downloaded newer image/);
  assert.ok(issued.length >= 3);
});

test('user and password go to the token server only; wrong ones are unauthorized', async () => {
  scene.publish(buildImage({ layers: layers() }));
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
  scene.publish(buildImage({ layers: layers() }));
  const { issued } = demandTokens();
  await linesOf(await harness.start(`${server.host}/app`, { credentials: { identityToken: 'refresh' } }));
  assert.match(issued[0] ?? '', /^POST/);
  await linesOf(await harness.start(`${server.host}/app`, { credentials: { registryToken: 'given' } }));
  assert.ok(server.headers.some(({ authorization }) => authorization === 'Bearer given'));
  assert.equal(issued.length, 1);
});

test('basic credentials are asked for by name when they are missing', async () => {
  scene.publish(buildImage({ layers: layers() }));
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
    const scope = 'scope="repository:app:pull",error="insufficient_scope"';
    response.writeHead(401, { 'www-authenticate': `Bearer realm="${server.url}/token",service="s",${scope}` }).end();
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
