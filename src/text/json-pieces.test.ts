import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isLong, jsonInTurns, jsonPieces } from './json-pieces.js';

const many = (length: number): number[] => Array.from({ length }, (_, at) => at);
const DOCUMENTS = [
  null,
  'text',
  {},
  [],
  { none: undefined, list: [undefined, null], empty: {} },
  { a: 1, none: undefined, b: many(2000), c: [], d: { e: many(3000).map((at) => ({ at, none: undefined })) } },
  [many(1500), undefined, ...many(1500)],
  { first: undefined, long: Object.fromEntries(many(2000).map((at) => [`"${at}\u2028`, [{ HostPort: `${at}` }]])) },
  { nothing: Object.fromEntries(many(2000).map((at) => [`${at}`, undefined])) },
  { ['__proto__']: many(2000) },
  'x'.repeat(70_000),
  // A pair at every place where a piece could end, and halves of pairs.
  { text: `"${'\u{1f600}'.repeat(50_000)}`, args: ['', `\\${'\u{1f600}'.repeat(50_000)}`, '\ud83d'.repeat(70_000)] },
];

test('the pieces of a document together are what JSON.stringify writes', async () => {
  for (const document of DOCUMENTS) {
    assert.equal([...jsonPieces(document)].join(''), JSON.stringify(document));
    const written: string[] = [];
    for await (const piece of jsonInTurns(document)) written.push(piece);
    assert.equal(written.join(''), JSON.stringify(document));
  }
});

test('no piece of a long text is long', () => {
  const text = 'a "quoted" text\n'.repeat(50_000);
  assert.equal(isLong({ Cmd: [text] }), true);
  for (const piece of jsonPieces({ Cmd: [text] })) assert.ok(piece.length < 40_000, `${piece.length} characters`);
});

test('no piece of many members is long', () => {
  const document = { ports: Object.fromEntries(many(20_000).map((at) => [`${at}/tcp`, [{ HostPort: `${at}` }]])) };
  assert.equal(isLong(document), true);
  assert.equal(isLong({ a: many(900), b: { c: many(50) } }), false);
  assert.equal(isLong({ a: many(900), b: { c: many(150) } }), true);
  for (const piece of jsonPieces(document)) assert.ok(piece.length < 20_000, `${piece.length} characters`);
});
