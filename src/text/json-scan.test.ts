import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isEngineError } from '../errors/engine-error.js';
import { JsonScan, type JsonLimits } from './json-scan.js';
import { parseScannedJson } from './parse-json.js';

const LIMITS: JsonLimits = { bytes: 1000, depth: 3, values: 10, members: 4 };

/** Returns the value of a text that arrives in pieces of a given size. */
function read(text: string, size = 1000, limits = LIMITS): unknown {
  const bytes = Buffer.from(text);
  const scan = new JsonScan(limits);
  for (let at = 0; at < bytes.length; at += size) scan.take(bytes.subarray(at, at + size));
  return parseScannedJson({ bytes, isEmpty: scan.isEmpty, firstEnd: scan.firstEnd, values: scan.values });
}

/** The message of the invalid error, wherever the text is cut. */
function refusal(text: string, limits = LIMITS): string {
  const messages = [1, 2, 3, 1000].map((size) => {
    try {
      read(text, size, limits);
    } catch (error) {
      assert.ok(isEngineError(error, 'invalid'));
      return error.message;
    }
    return 'accepted';
  });
  assert.equal(new Set(messages).size, 1, messages.join());
  return messages[0] ?? '';
}

test('what is JSON is parsed', () => {
  const texts = [
    '{}',
    ' [1,2] ',
    '"a\\"b\\\\"',
    ' null\n',
    '12',
    '{"a":"}],[{"}',
    '{"é\\u0041":[{"b":"\\\\"}]}',
    '{"__proto__":1}',
  ];
  for (const text of texts) {
    for (const size of [1, 2, 3, 1000]) assert.deepEqual(read(text, size), JSON.parse(text), text);
  }
});

test('faults of the text are told apart', () => {
  for (const text of ['', ' \n']) assert.equal(refusal(text), 'invalid JSON: got EOF while reading request body');
  for (const text of ['{} {}', '[1]]', '1 2', '"a" b', '{"a":"}"}x', 'null,', '{}[', '1"a"']) {
    assert.equal(refusal(text), 'unexpected content after JSON', text);
  }
  for (const text of ['{', '{"a":}', '[1 2]', '"a', 'nul', '}', '{"a" 1} {}', ',', '"\\', '{"a":"']) {
    assert.match(refusal(text), /^invalid JSON: /, text);
  }
});

test('two members of one name are refused where it is asked for', () => {
  for (const text of ['{"a":1,"a":1}', '[{"a":{}},{"b":[],"\\u0062":3}]', '{"__proto__":1,"__proto__":2}'])
    assert.equal(refusal(text), 'invalid JSON: an object has two members of one name', text);
  const scanned = { bytes: Buffer.from('{"a":1,"a":2}'), isEmpty: false, firstEnd: undefined };
  assert.deepEqual(parseScannedJson(scanned), { a: 2 });
});

test('what goes beyond a limit is refused by name, also when it is no JSON', () => {
  const cases: [text: string, message: string][] = [
    ['[[[1]]]', 'accepted'],
    ['[[[[1]]]]', 'invalid JSON: exceeded max depth of 3'],
    ['[[[[', 'invalid JSON: exceeded max depth of 3'],
    ['{"a":{"b":{"c":{}}}}', 'invalid JSON: exceeded max depth of 3'],
    ['[1,2,3,4]', 'accepted'],
    ['[1,2,3,4,5]', 'invalid JSON: more than 4 members in one array or object'],
    ['{"a":1,"b":",,,,,,","c":3,"d":4}', 'accepted'],
    ['{"a":1,"b":2,"c":3,"d":4,"e":5}', 'invalid JSON: more than 4 members in one array or object'],
    ['[[1,2,3],[4,5,6],[7,8,9]]', 'invalid JSON: more than 10 values'],
    [`"${'x'.repeat(998)}"`, 'accepted'],
    [`"${'x'.repeat(999)}"`, 'request body is larger than 1000 bytes'],
  ];
  for (const [text, message] of cases) assert.equal(refusal(text), message, text);
  assert.throws(
    () => new JsonScan(LIMITS).expect(1001),
    (error) => isEngineError(error, 'invalid') && error.code === 'BODY_TOO_LARGE',
  );
});

test('a scan takes as long as its text, whatever that is', () => {
  const large = { bytes: 20e6, depth: 100, values: 1e9, members: 1e9 };
  for (const text of [
    '"'.padEnd(3e6, 'x'),
    '"'.padEnd(3e6, '\\'),
    '"a",'.repeat(8e5),
    '}'.repeat(3e6),
    ' '.repeat(3e6),
    `{"a":"${'\\"'.repeat(1.4e6)}`,
  ]) {
    const started = performance.now();
    const scan = new JsonScan(large);
    scan.take(Buffer.from(text));
    // A fiftieth of a second is usual; anything that goes back and forth would take minutes.
    assert.ok(performance.now() - started < 20_000);
  }
});
