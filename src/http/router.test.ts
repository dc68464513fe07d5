import assert from 'node:assert/strict';
import test from 'node:test';
import { route } from './route.js';
import { Router } from './router.js';

const handler = (): void => undefined;
const router = new Router([
  route('GET', '/_ping', handler),
  route('HEAD', '/_ping', handler),
  route('GET', '/images/json', handler),
  route('GET', '/images/{name...}/json', handler),
  route('GET', '/images/{name...}/get', handler),
  route('DELETE', '/images/{name...}', handler),
  route('DELETE', '/containers/{id}', handler),
  route('DELETE', '/containers/{id}/checkpoints/{checkpoint}', handler),
  route('POST', '/containers/create', handler),
  route('POST', '/containers/{id...}/start', handler),
]);

/** Returns in a line what a request comes to. */
function resolve(method: string, path: string): string {
  const found = router.resolve(method, path);
  if (found.kind === 'route') {
    const params = [...found.params].map(([name, value]) => `${name}=${value}`).join(' ');
    return `${found.route.pattern} v${found.version.text} ${params}`.trimEnd();
  }
  if (found.kind === 'redirect') return `redirect ${found.path}`;
  return found.kind;
}

test('routes are found by method and path, with and without version', () => {
  const cases = {
    'GET /_ping': '/_ping v1.51',
    'HEAD /v1.24/_ping': '/_ping v1.24',
    'GET /v1.51/images/json': '/images/json v1.51',
    'GET /images/json/json': '/images/{name...}/json v1.51 name=json',
    'GET /v1.30/images/reg:5000/a/b/json': '/images/{name...}/json v1.30 name=reg:5000/a/b',
    'GET /images/a%2Fb%20c/get': '/images/{name...}/get v1.51 name=a/b c',
    'DELETE /images/a/b': '/images/{name...} v1.51 name=a/b',
    'DELETE /containers/a/b': 'not-found',
    'DELETE /v1.41/containers/a/checkpoints/b': '/containers/{id}/checkpoints/{checkpoint} v1.41 id=a checkpoint=b',
    'POST /v1.24.0/containers/x/start': '/containers/{id...}/start v1.24.0 id=x',
    'GET /%5Fping': '/_ping v1.51',
  };
  for (const [request, expected] of Object.entries(cases)) {
    const [method = '', path = ''] = request.split(' ');
    assert.equal(resolve(method, path), expected, request);
  }
});

test('a request for the same path by another method, or again, gets its own route', () => {
  for (const [method, path] of [
    ['GET', '/_ping'],
    ['HEAD', '/_ping'],
    ['HEAD', '/_ping'],
    ['HEAD', '/v1.44/_ping'],
    ['GET', '/_ping'],
  ] as const) {
    const found = router.resolve(method, path);
    assert.ok(found.kind === 'route');
    assert.deepEqual([found.route.method, found.version.text], [method, path === '/_ping' ? '1.51' : '1.44']);
  }
  assert.equal(resolve('POST', '/_ping'), 'not-found');
});

test('what no route serves is told apart', () => {
  const cases = {
    'GET /': 'not-found',
    'GET /_ping/': 'not-found',
    'POST /_ping': 'not-found',
    'get /_ping': 'not-found',
    'HEAD /images/json': 'not-found',
    'GET /v9.9/nope': 'not-found',
    'GET /v1.51': 'not-found',
    'GET /vx/_ping': 'not-found',
    'GET /__proto__/constructor': 'not-found',
    'POST /containers//start': 'redirect /containers/start',
    'GET //v1.30/./images/../_ping/': 'redirect /v1.30/_ping/',
    'GET /images/a%20b//json': 'redirect /images/a%20b/json',
    'GET /images/%e0%a4/json': 'bad-path',
    'GET /v1.23/_ping': 'version-too-old',
    'GET /v1/_ping': 'version-too-old',
    'GET /v1.9/_ping': 'version-too-old',
    'GET /v1.52/_ping': 'version-too-new',
    'GET /v1.51.1/_ping': 'version-too-new',
    'OPTIONS /v1.30/whatever': 'options',
    'OPTIONS /v1.99/whatever': 'version-too-new',
  };
  for (const [request, expected] of Object.entries(cases)) {
    const [method = '', path = ''] = request.split(' ');
    assert.equal(resolve(method, path), expected, request);
  }
});

test('contradicting declarations are refused', () => {
  assert.throws(() => new Router([route('GET', '/a', handler), route('GET', '/a', handler)]), /declared twice/);
  assert.throws(() => new Router([route('GET', '/{name...}', handler)]), /literal segment/);
});
