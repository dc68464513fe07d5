import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import { compileGlob } from './glob.js';
import { ownMember } from './own-member.js';
import { compilePattern, PatternError } from './pattern.js';
import { WorkBudget } from './work-budget.js';

const budget = (): WorkBudget => new WorkBudget('test');

test('globs are those of Go: a star stops at a slash', () => {
  const table: readonly (readonly [glob: string, name: string, expected: boolean])[] = [
    ['*', 'a', true],
    ['*', 'a/b', false],
    ['a/*', 'a/b', true],
    ['[a-c]x', 'bx', true],
    ['[^a]x', 'ax', false],
    ['a.c', 'abc', false],
    ['a\\*', 'a*', true],
    ['[z-a]', 'b', false],
    ['', '', true],
    ['', 'a', false],
    ['**', '', true],
    ['*a*b', 'xa/ab', false],
    ['*b*c', 'abbbc', true],
    ['a*/b', 'a/b', true],
    ['?', '/', false],
    ['?', 'é', true],
    ['*ab*ab', 'abab', true],
    ['*ab*ab', 'ab', false],
    ['[\\]]', ']', true],
    ['[^a-c]*', 'x', true],
    ['[-]', '-', false],
  ];
  for (const [glob, name, expected] of table) {
    if (glob === '[-]') assert.throws(() => compileGlob(glob, budget()), /syntax error in pattern/);
    else assert.equal(compileGlob(glob, budget())(name), expected, `${glob} ${name}`);
  }
  for (const bad of ['[', 'a\\', '[]', '[a', '[a-', '[^', '[a-]']) {
    assert.throws(
      () => compileGlob(bad, budget()),
      (error) => isEngineError(error, 'invalid'),
      bad,
    );
  }
});

test('patterns have the syntax of RE2 and a bound on their size', () => {
  assert.equal(compilePattern('^/we', budget())('/web'), true);
  assert.equal(compilePattern('web', budget())('/web'), true);
  assert.equal(compilePattern('[[:alpha:]]+$', budget())('12'), false);
  for (const bad of [
    '(',
    'a**',
    '(?=a)',
    'a{1000}{1000}',
    '(a{1000}){1000}',
    '(((a{10}){10}){10}){10}',
    '(a?){999}',
    `.${'a'.repeat(5000)}`,
  ]) {
    assert.throws(() => compilePattern(bad, budget()), PatternError, bad.slice(0, 40));
  }
});

test('a pattern that explodes elsewhere ends, and many large ones are refused', () => {
  assert.equal(compilePattern('^/?(a+)+$', budget())(`${'a'.repeat(5000)}!`), false);
  assert.equal(compileGlob('*e*e*e*e*e*e*e*Z', budget())('e'.repeat(500)), false);
  const matches = compilePattern('(\\pL{30}){30}', budget());
  assert.throws(() => {
    for (let i = 0; i < 100; i++) matches('x'.repeat(500));
  }, /patterns take too long/);
});

test('a glob is cheap for names that differ in its beginning, however many there are', () => {
  const matches = compileGlob('registry/web:*', budget());
  for (let i = 0; i < 100_000; i++) assert.equal(matches(`registry/other-${i}:1`), false);
  assert.equal(matches('registry/web:1'), true);
  assert.equal(compileGlob('\\*a', budget())('*a'), true);
});

test('only own members are found', () => {
  for (const name of ['constructor', '__proto__', 'toString', 'hasOwnProperty']) {
    assert.equal(ownMember({ a: 'b' }, name), undefined);
    assert.equal(ownMember(JSON.parse(`{"${name}":"x"}`) as Record<string, string>, name), 'x');
  }
  assert.equal(ownMember(undefined, 'a'), undefined);
});
