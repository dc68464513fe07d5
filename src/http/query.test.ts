import assert from 'node:assert/strict';
import test from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import { Query } from './query.js';

test('flags are false only for the documented words', () => {
  for (const word of ['', '0', 'no', 'False', ' NONE '])
    assert.equal(new Query(`a=${encodeURIComponent(word)}`).flag('a'), false, word);
  for (const word of ['1', 'true', 'yes', 'banana']) assert.equal(new Query(`a=${word}`).flag('a'), true, word);
  assert.equal(new Query('').flag('a'), false);
  assert.equal(new Query('a').flag('a'), false);
});

test('the default of a flag counts only when the key is absent', () => {
  assert.equal(new Query('').flagOr('quiet', true), true);
  assert.equal(new Query('quiet=').flagOr('quiet', true), false);
  assert.equal(new Query('quiet=1').flagOr('quiet', false), true);
});

test('values are decoded and repeated keys kept in order', () => {
  const query = new Query('names=a%2Fb&names=c+d&&=x&e');
  assert.deepEqual(query.all('names'), ['a/b', 'c d']);
  assert.equal(query.text('names'), 'a/b');
  assert.equal(query.has('e'), true);
  assert.equal(query.text('missing'), '');
  assert.throws(
    () => new Query('a=%zz').text('b'),
    (error) => isEngineError(error, 'invalid'),
  );
});

test('a semicolon is refused, unless it is encoded', () => {
  assert.equal(new Query('a=1%3B&b=2').text('a'), '1;');
  for (const raw of ['force=1;', 'a=1;b=2', 'b=2&;', 'b=2&a;b=1'])
    assert.throws(() => new Query(raw).flag('b'), /^EngineError: invalid semicolon separator in query$/, raw);
});

test('integers are decimal, and bad ones have the status that dockerd gives them', () => {
  const query = new Query('t=-1&plus=%2B7&hex=0x10&float=1.5&empty=&huge=99999999999999999999');
  assert.equal(query.integer('t'), -1);
  assert.equal(query.integer('plus'), 7);
  assert.equal(query.integer('empty'), undefined);
  assert.equal(query.integer('missing'), undefined);
  assert.throws(
    () => query.integer('hex'),
    (error) =>
      isEngineError(error, 'invalid') && error.message === 'invalid hex: strconv.Atoi: parsing "0x10": invalid syntax',
  );
  assert.throws(() => query.integer('float'), /invalid float/);
  assert.throws(() => query.integer('huge'), /value out of range/);
});
