import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import { CAPABILITIES, capabilitiesOf, containerCapabilities, processCapabilities } from './capabilities.js';

const set = (add: string[], drop: string[], privileged = false): string[] =>
  containerCapabilities({ add, drop, privileged }, CAPABILITIES);

test('the default set, and what add and drop make of it', () => {
  assert.equal(set([], []).length, 14);
  assert.deepEqual(set(['net_admin'], ['ALL']), ['CAP_NET_ADMIN']);
  assert.deepEqual(set([], ['all']), []);
  assert.equal(set(['ALL'], ['CAP_SYS_ADMIN']).length, CAPABILITIES.length - 1);
  assert.equal(set(['ALL'], ['ALL']).length, CAPABILITIES.length);
  assert.ok(set(['CHOWN'], ['CHOWN']).includes('CAP_CHOWN'));
  assert.ok(!set([], ['mknod']).includes('CAP_MKNOD'));
  assert.deepEqual(set([], ['ALL'], true), [...CAPABILITIES]);
});

test('the daemon gives nothing that it does not have', () => {
  assert.deepEqual(containerCapabilities({ add: ['ALL'], drop: [], privileged: false }, ['CAP_CHOWN']), ['CAP_CHOWN']);
  assert.deepEqual(capabilitiesOf(0b1001n), ['CAP_CHOWN', 'CAP_FOWNER']);
});

test('unknown names are refused, with the field', () => {
  for (const [add, drop, message] of [
    [['nope'], [], 'invalid CapAdd: unknown capability: "CAP_NOPE"'],
    [[], ['CAP_X'], 'invalid CapDrop: unknown capability: "CAP_X"'],
  ] as const) {
    assert.throws(
      () => set([...add], [...drop]),
      (error) => isEngineError(error, 'invalid') && error.message === message,
    );
  }
});

test('only root starts with capabilities in effect', () => {
  assert.deepEqual(processCapabilities(['CAP_KILL'], 0), {
    bounding: ['CAP_KILL'],
    effective: ['CAP_KILL'],
    permitted: ['CAP_KILL'],
  });
  assert.deepEqual(processCapabilities(['CAP_KILL'], 1), { bounding: ['CAP_KILL'] });
});
