import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { EngineError, messageOf } from '../../errors/engine-error.js';
import { NO_ENVIRONMENT, ShellLexer } from './shell-lexer.js';

const VALUES = new Map([
  ['x', 'abc'],
  ['empty', ''],
  ['path', '/usr/lib/x.tar.gz'],
  ['dots', 'a.b.c'],
  ['ü', 'umlaut'],
]);

function expand(text: string, escape: '\\' | '`' = '\\'): string {
  try {
    return new ShellLexer({ escape }).process(text, { get: (name) => VALUES.get(name) }).result;
  } catch (error) {
    assert.ok(error instanceof EngineError, String(error));
    return messageOf(error);
  }
}

describe('variables', () => {
  const cases: readonly (readonly [string, string])[] = [
    ['$x-${x}_$none.', 'abc-abc_.'],
    ['$xy ${x}y', ' abcy'],
    ['$ü', 'umlaut'],
    ['${none:-d} ${none-d} ${empty:-d} ${empty-d}', 'd d d '],
    ['${x:+s} ${none:+s} ${empty:+s} ${empty+s}', 's   s'],
    ['${x:?no} ${x?no}', 'abc abc'],
    ['${none:-${x}}', 'abc'],
    ['${none:-"a b"}', 'a b'],
    ['${path#*/} ${path##*/}', 'usr/lib/x.tar.gz x.tar.gz'],
    ['${path%.*} ${path%%.*}', '/usr/lib/x.tar /usr/lib/x'],
    ['${path#none} ${path%none}', '/usr/lib/x.tar.gz /usr/lib/x.tar.gz'],
    ['${dots/./-} ${dots//./-} ${dots/?/z}', 'a-b.c a-b-c z.b.c'],
    ['${path/\\/usr\\/lib/y}', 'y/x.tar.gz'],
    ['${x#\\*}', 'abc'],
    ['\\$x "\\$x" \'$x\' "$x"', '$x $x $x abc'],
    ['"a\\b" a\\b \'a\\b\'', 'a\\b ab a\\b'],
    ['$ $. $1a $$', '$ $. a '],
    ['<<EOF $x', '<<EOF abc'],
  ];
  for (const [text, expected] of cases) it(text, () => assert.equal(expand(text), expected));

  it('are escaped by the character of the file', () => assert.equal(expand('`$x \\$x C:\\a', '`'), '$x \\abc C:\\a'));
});

describe('words that have something in them', () => {
  const lexer = new ShellLexer({ escape: '\\', keepsUnset: true });
  for (const text of [
    'a b3<<E c d',
    ' <<E ',
    'a"x <"b c',
    'a<b c<d "e f" g<',
    'a b\\ <c d e',
    '${v:-a <b c} d<',
    'plain words alone',
  ]) {
    it(text, () => {
      const marked = (words: readonly string[]): string[] => words.filter((word) => word.includes('<'));
      assert.deepEqual(marked(lexer.words(text, NO_ENVIRONMENT, '<')), marked(lexer.words(text, NO_ENVIRONMENT)));
    });
  }

  it('are few of a long line', () =>
    assert.deepEqual(lexer.words(`${'a b '.repeat(1000)}<<E`, NO_ENVIRONMENT, '<'), ['a', '<<E']));
});

describe('errors of substitution', () => {
  const cases: readonly (readonly [string, string])[] = [
    ['${x', 'unsupported modifier (\uFFFD) in substitution'],
    ['${', "syntax error: missing '}'"],
    ['${}', 'syntax error: bad substitution'],
    ['${x:-a', "syntax error: missing '}'"],
    ['${x!a}', 'unsupported modifier (!) in substitution'],
    ['${x:#a}', 'unsupported modifier (:#) in substitution'],
    ['${none:?}', 'none: is not allowed to be unset'],
    ['${empty:?}', 'empty: is not allowed to be empty'],
    ['${none?my words}', 'none: my words'],
    ['${x/a}', "syntax error: missing '/' in ${}"],
    ['"a', 'unexpected end of statement while looking for matching double-quote'],
    ["'a", 'unexpected end of statement while looking for matching single-quote'],
  ];
  for (const [text, expected] of cases)
    it(text, () => assert.equal(expand(text), `failed to process ${JSON.stringify(text)}: ${expected}`));
});

describe('the work of a word', () => {
  it('is limited for patterns', () => {
    VALUES.set('long', 'a'.repeat(60_000));
    assert.match(expand(`\${long#${'*a'.repeat(30_000)}b}`), /take too long/);
  });

  it('is limited for values', () => {
    VALUES.set('long', 'a'.repeat(60_000));
    assert.match(expand('$long'.repeat(1000)), /too long/);
  });

  it('is limited for nesting', () => {
    assert.match(expand('${none:-'.repeat(10_000)), /nested too deeply|missing/);
  });
});
