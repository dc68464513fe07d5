import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseAccessRule } from '../config/scoped-sockets.js';
import { accessPolicy } from './access-policy.js';
import { route, type Method } from './route.js';
import { Router } from './router.js';

const nothing = (): void => undefined;
const router = new Router([
  route('GET', '/_ping', nothing),
  route('HEAD', '/_ping', nothing),
  route('GET', '/containers/json', nothing),
  route('GET', '/containers/{name...}/json', nothing),
  route('GET', '/containers/{name...}/attach/ws', nothing, { hijack: 'after-body' }),
  route('POST', '/containers/{name...}/start', nothing),
  route('POST', '/containers/{name...}/attach', nothing, { hijack: 'after-head' }),
  route('DELETE', '/containers/{name...}', nothing),
]);

function allows(rules: readonly string[], method: Method, path: string): boolean {
  const found = router.resolve(method, path);
  assert.equal(found.kind, 'route', path);
  return found.kind === 'route' && accessPolicy(rules.map(parseAccessRule))(method, found);
}

test('a rule allows what it names, in every version and spelling, and nothing else', () => {
  const cases: [rule: string, method: Method, path: string, allowed: boolean][] = [
    ['GET /containers/*', 'GET', '/containers/json', true],
    ['GET /containers/*', 'GET', '/v1.30/containers/a/json', true],
    ['GET /containers/*', 'GET', '/containers/a%2Fb/json', true],
    ['GET /containers/*', 'DELETE', '/containers/a', false],
    ['GET /containers/*', 'POST', '/containers/a/start', false],
    ['GET /containers/*/json', 'GET', '/containers/json', false],
    ['GET /containers/*/json', 'GET', '/containers/a/json', true],
    ['GET /containers/json', 'GET', '/containers/%6ason', true],
    ['GET /containers/json', 'GET', '/containers/a/json', false],
    ['GET /containers/js.n', 'GET', '/containers/json', false],
    ['POST /containers/web-*/start', 'POST', '/containers/web-1/start', true],
    ['POST /containers/web-*/start', 'POST', '/containers/db/start', false],
    ['POST /containers/web-*/start', 'POST', '/containers/db%2Fweb-1/start', false],
    ['GET /_ping', 'HEAD', '/_ping', true],
    ['HEAD /_ping', 'GET', '/_ping', false],
    ['* /containers/*', 'DELETE', '/containers/a', true],
    ['* /*', 'POST', '/v1.41/containers/a/attach', true],
  ];
  for (const [rule, method, path, allowed] of cases)
    assert.equal(allows([rule], method, path), allowed, `${rule}: ${method} ${path}`);
  assert.equal(allows([], 'GET', '/_ping'), false);
});

test('reading rules do not cover a GET over which clients write', () => {
  const path = '/containers/a/attach/ws';
  assert.equal(allows(['GET /containers/*'], 'GET', path), false);
  assert.equal(allows(['GET /*'], 'GET', path), false);
  assert.equal(allows(['GET /containers/*/attach/ws'], 'GET', path), true);
  assert.equal(allows(['* /containers/*'], 'GET', path), true);
});

test('a path made to be slow is not', () => {
  const policy = accessPolicy([parseAccessRule('GET /containers/*a*a*a*a*a*b')]);
  const found = router.resolve('GET', `/containers/${'a'.repeat(60_000)}/json`);
  assert.equal(found.kind === 'route' && policy('GET', found), false);
});

test('a rule that could never match is refused', () => {
  for (const rule of [
    '',
    'GET',
    'GET containers',
    'get /a',
    'PATCH /a',
    'GET  /a',
    'GET /v1.41/containers/json',
    'GET /a?b',
    'GET /a%2f',
    'GET /a//b',
    'GET /a/../b',
    'GET /a b',
  ]) {
    assert.throws(() => parseAccessRule(rule), /invalid rule/, rule);
  }
});
