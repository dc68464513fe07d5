import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Names, newContainerId } from './names.js';

test('a name is held by one container until it is released by that one', () => {
  const names = new Names();
  assert.equal(names.reserve('web', 'a'), '/web');
  assert.equal(names.reserve('/web', 'a'), '/web');
  assert.throws(() => names.reserve('web', 'b'), /The container name "\/web" is already in use by container "a"/);
  names.release('/web', 'b');
  assert.equal(names.get('web'), 'a');
  names.release('/web', 'a');
  assert.equal(names.reserve('web', 'b'), '/web');
});

test('bad names are refused with the rule', () => {
  const names = new Names();
  for (const bad of ['', 'x', '-web', 'we b', 'wéb', '//web', 'web/1'])
    assert.throws(() => names.reserve(bad, 'a'), /only \[a-zA-Z0-9\]\[a-zA-Z0-9_.-\] are allowed/, bad);
});

test('generated names are valid and free', () => {
  const names = new Names();
  const made = new Set(Array.from({ length: 500 }, (_, index) => names.generate(`${index}`.padStart(64, 'a'))));
  assert.equal(made.size, 500);
  for (const name of made) assert.match(name, /^\/[a-z0-9]+(_[a-z0-9]+)?$/);
});

test('ids are 64 hex digits whose short form is no number', () => {
  for (let i = 0; i < 200; i++) assert.match(newContainerId(), /^(?=[0-9]{0,11}[a-f])[0-9a-f]{64}$/);
});
