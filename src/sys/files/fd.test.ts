import assert from 'node:assert/strict';
import { closeSync, fstatSync, openSync, readFileSync } from 'node:fs';
import test from 'node:test';
import { isEngineError } from '../../errors/engine-error.js';
import { closeFd, duplicateFd } from './fd.js';

test('a duplicate is the same open file and is not inherited by children', () => {
  const fd = openSync('/proc/self/status', 'r');
  const copy = duplicateFd(fd);
  closeSync(fd);
  assert.equal(fstatSync(copy).isFile(), true);
  assert.match(readFileSync(`/proc/self/fdinfo/${copy}`, 'utf8'), /^flags:\s+0*2\d{6}$/m);
  closeFd(copy);
});

test('a failed call names the function and carries the errno as code', () => {
  assert.throws(
    () => duplicateFd(-1),
    (error) => isEngineError(error, 'internal') && error.code === 'EBADF' && error.message.startsWith('fcntl: '),
  );
});
