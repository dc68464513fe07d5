import assert from 'node:assert/strict';
import test from 'node:test';
import { Metadata, status as Status, type ServiceError } from '@grpc/grpc-js';
import { fromGrpc, fromShim } from './grpc-error.js';

function serviceError(code: Status, details: string): ServiceError {
  return Object.assign(new Error(`${code}: ${details}`), { code, details, metadata: new Metadata() });
}

test('a runtime failure keeps its text without the class, and is marked', () => {
  const text = 'OCI runtime create failed: exec: "x": executable file not found in $PATH';
  const error = fromGrpc(serviceError(Status.UNKNOWN, `${text}: unknown`), 'Create');
  assert.equal(error.kind, 'internal');
  assert.equal(error.message, text);
  assert.deepEqual(error.details, { method: 'Create', grpcCode: 2, runtimeError: true });
});

test('the last words of a text stay when they are not its class', () => {
  const text = 'OCI runtime create failed: error during container init: sethostname: invalid argument';
  for (const details of [text, `${text}: unknown`])
    assert.equal(fromGrpc(serviceError(Status.UNKNOWN, details), 'Create').message, text);
  assert.equal(fromShim({ code: Status.UNKNOWN, message: text }, 'Create').message, text);
  assert.equal(fromShim({ code: Status.INVALID_ARGUMENT, message: 'x: invalid argument' }, 'Create').message, 'x');
});

test('statuses become kinds', () => {
  const cases: [Status, string, string, string][] = [
    [Status.NOT_FOUND, 'process already finished: not found', 'not-found', 'process already finished'],
    [Status.UNKNOWN, 'cannot delete a running process: unknown', 'conflict', 'cannot delete a running process'],
    [
      Status.UNKNOWN,
      'OCI runtime resume failed: container not paused: unknown',
      'conflict',
      'OCI runtime resume failed: container not paused',
    ],
    [Status.FAILED_PRECONDITION, 'task must be stopped', 'conflict', 'task must be stopped'],
    [Status.UNAVAILABLE, 'Connection dropped', 'unavailable', 'the supervisor does not answer: Connection dropped'],
    [Status.UNIMPLEMENTED, 'unknown service x', 'not-implemented', 'unknown service x'],
    [Status.INTERNAL, 'odd', 'internal', 'odd'],
  ];
  for (const [code, details, kind, message] of cases) {
    const error = fromGrpc(serviceError(code, details), 'Method');
    assert.deepEqual([error.kind, error.message], [kind, message]);
  }
  assert.equal(fromGrpc(new Error('local'), 'Method').message, 'Method: local');
});

test('a shim that has gone is no failure of the runtime, and a command cannot look like one', () => {
  for (const text of [
    'ttrpc: closed',
    'failed to connect: dial unix /run/containerd/s/1f: connect: no such file or directory',
    'write unix @->/run/containerd/s/1f: write: broken pipe',
  ]) {
    const error = fromGrpc(serviceError(Status.UNKNOWN, `${text}: unknown`), 'Start');
    assert.deepEqual([error.kind, error.message], ['internal', `the shim does not answer: ${text}`]);
    assert.deepEqual(error.details, { method: 'Start', grpcCode: 2, shimLost: true });
  }
  const named = 'OCI runtime exec failed: exec failed: "dial unix ": executable file not found in $PATH';
  const error = fromGrpc(serviceError(Status.UNKNOWN, named), 'Start');
  assert.deepEqual([error.message, error.details['runtimeError']], [named, true]);
});
