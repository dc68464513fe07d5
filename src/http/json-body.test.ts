import assert from 'node:assert/strict';
import test from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import { requireJsonType } from './json-body.js';

/** Returns the message of the invalid error that a call throws. */
function refusal(call: () => unknown): string {
  try {
    call();
  } catch (error) {
    assert.ok(isEngineError(error, 'invalid'));
    return error.message;
  }
  return 'accepted';
}

test('the media type must be application/json', () => {
  for (const type of ['application/json', 'Application/JSON', ' application/json ; charset="utf-8"; a=b']) {
    assert.equal(
      refusal(() => requireJsonType(type)),
      'accepted',
      type,
    );
  }
  assert.equal(
    refusal(() => requireJsonType(undefined)),
    'malformed Content-Type header (): mime: no media type',
  );
  assert.equal(
    refusal(() => requireJsonType('text/plain')),
    "unsupported Content-Type header (text/plain): must be 'application/json'",
  );
  assert.match(
    refusal(() => requireJsonType('application/json; charset')),
    /^malformed Content-Type header \(application\/json; charset\): /,
  );
  assert.match(
    refusal(() => requireJsonType('/')),
    /^malformed Content-Type header/,
  );
});
