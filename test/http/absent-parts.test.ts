/** Parts that this engine does not have answer as such, none of them as a page that is not there. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { absentPartRoutes } from '../../src/http/routes/absent-parts.js';
import { call } from '../support/http.js';
import { TestFront } from '../support/test-front.js';

const at = new TestFront(absentPartRoutes());

const SWARM = /^This node is not a swarm manager\./;

const REPLIES: readonly [method: string, path: string, status: number, message: RegExp][] = [
  ['GET', '/services/x/logs?stdout=1', 503, SWARM],
  ['GET', '/tasks/x/logs?stdout=1', 503, SWARM],
  ['GET', '/services/x', 503, SWARM],
];

test('every route of an absent part says what is absent', async () => {
  for (const [method, path, status, message] of REPLIES) {
    const reply = await call(at.path, method, path);
    assert.equal(reply.status, status, path);
    assert.match((JSON.parse(reply.text) as { message: string }).message, message, path);
  }
});
