import assert from 'node:assert/strict';
import test from 'node:test';
import { EngineError, type ErrorKind } from '../errors/engine-error.js';
import { errorBody, statusOf } from './error-status.js';

test('every kind has its status, and what is no EngineError is a 500', () => {
  const expected: Record<ErrorKind, number> = {
    invalid: 400,
    unauthorized: 401,
    forbidden: 403,
    'not-found': 404,
    conflict: 409,
    'not-modified': 304,
    unavailable: 503,
    'not-implemented': 501,
    deadline: 500,
    cancelled: 500,
    'data-loss': 500,
    internal: 500,
  };
  for (const [kind, status] of Object.entries(expected))
    assert.equal(statusOf(new EngineError(kind as ErrorKind, 'x')), status);
  assert.equal(statusOf(new TypeError('x')), 500);
  assert.equal(statusOf('x'), 500);
});

test('the body is the message only, not HTML-escaped, with a newline', () => {
  assert.equal(errorBody(new Error('a <b> & "c"')), '{"message":"a <b> & \\"c\\""}\n');
  assert.equal(errorBody('text'), '{"message":"text"}\n');
});
