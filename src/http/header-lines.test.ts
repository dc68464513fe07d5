import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readHeaderLines } from './header-lines.js';

const read = (...lines: string[]): Record<string, string> | undefined => {
  const headers = readHeaderLines(lines);
  return headers && Object.fromEntries(headers);
};

test('names come in lower case, values without the blanks around them', () => {
  assert.deepEqual(read('Host: x', 'X-Empty:', 'X-Blanks: \t ', 'X-Inner:\ta  b:c \t', 'x-high: \xe9'), {
    host: 'x',
    'x-empty': '',
    'x-blanks': '',
    'x-inner': 'a  b:c',
    'x-high': '\xe9',
  });
  assert.deepEqual(read(), {});
});

test('what is no header line, or comes twice where that is not possible, is not taken', () => {
  for (const line of [
    '',
    'no colon',
    ': no name',
    'Name : x',
    ' Folded: x',
    'A: b\rC: d',
    'A: b\0',
    'A: \x7f',
    '\xe9: x',
  ]) {
    assert.equal(read(line), undefined, JSON.stringify(line));
  }
  for (const name of ['Host', 'Content-Length', 'Transfer-Encoding'])
    assert.equal(read(`${name}: 1`, `${name.toLowerCase()}: 1`), undefined, name);
  assert.equal(read('__proto__: b', 'Constructor: c')?.['constructor'], 'c');
});

test('of a header that comes twice the first one counts, and of the options of a connection all', () => {
  assert.deepEqual(read('A: b', 'Connection: x', 'a: c', 'connection:', 'CONNECTION: close'), {
    a: 'b',
    connection: 'x, , close',
  });
});

test('a run of blanks costs as little as any other text of its length', () => {
  for (const blanks of [' '.repeat(1_000_000), '\t '.repeat(500_000)]) {
    const started = performance.now();
    assert.equal(read(`X:${blanks}\x01`), undefined);
    assert.equal(read(`X:${blanks}a${blanks}`)?.['x'], 'a');
    // Parsing takes milliseconds; a pattern with several ways to divide the run would take days.
    assert.ok(performance.now() - started < 5_000);
  }
});
