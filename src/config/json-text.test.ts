import assert from 'node:assert/strict';
import { test } from 'node:test';
import { JsonSyntaxError, parseJson } from './json-text.js';

test('agrees with JSON.parse on what is JSON and on what is not', () => {
  const texts = [
    '{}',
    '[]',
    ' [1, -2.5e+3, 0, -0] ',
    '{"a": {"b": [true, false, null]}}',
    '"\\u00e9\\n\\"/"',
    '1',
    'true',
    '{"a":"\u2028"}',
    '[[[[]]]]',
    '',
    '{',
    '}',
    '[1,]',
    '{"a":}',
    '{"a" 1}',
    '{a:1}',
    "{'a':1}",
    '[01]',
    '[1.]',
    '[.5]',
    '[+1]',
    '"\n"',
    '"\\x"',
    'tru',
    '{}{}',
    '[1 2]',
    'NaN',
    '// x',
    '{"a":1,}',
    '["\\ud800"]',
  ];
  for (const text of texts) {
    let expected: unknown;
    try {
      expected = { value: JSON.parse(text) as unknown };
    } catch {
      assert.throws(() => parseJson(text), JsonSyntaxError, text);
      continue;
    }
    assert.deepEqual(
      { value: JSON.parse(JSON.stringify(parseJson(text).value)) as unknown },
      JSON.parse(JSON.stringify(expected)),
      text,
    );
  }
});

test('knows where each member is', () => {
  const { positions } = parseJson('{\n  "a": 1,\n  "b": {"c":\n [\n5]}}');
  assert.deepEqual(
    [...positions],
    [
      ['a', { line: 2, column: 3 }],
      ['b', { line: 3, column: 3 }],
      ['b.c', { line: 3, column: 9 }],
      ['b.c.0', { line: 5, column: 1 }],
    ],
  );
});

test('a name that is given twice is refused where it is', () => {
  assert.throws(
    () => parseJson('{"a": 1,\n "a": 2}'),
    (error) =>
      error instanceof JsonSyntaxError &&
      error.message.startsWith('"a" is given twice') &&
      error.position.line === 2 &&
      error.position.column === 2,
  );
});

test('no member can reach the prototype of objects', () => {
  const { value } = parseJson('{"__proto__": {"polluted": true}, "constructor": 1}');
  assert.equal(({} as { polluted?: boolean }).polluted, undefined);
  assert.deepEqual(Object.keys(value as object), ['__proto__', 'constructor']);
});
