import assert from 'node:assert/strict';
import { test } from 'node:test';
import { goJson } from './go-json.js';
import { goJsonParts } from './json-parts.js';
import { whole } from './turns.js';

test('the parts of a document together are the document', () => {
  const many = Object.fromEntries(Array.from({ length: 1200 }, (_, at) => [`key <${at}>`, { a: at }]));
  const documents = [
    null,
    'a & b',
    {},
    [],
    { none: undefined, empty: {}, list: [], deep: { a: { b: { c: [1, { d: undefined, e: null }] } } } },
    { config: { Labels: many, Env: ['A=1'], ExposedPorts: { '80/tcp': {} } }, history: [{ created_by: '<x>' }, {}] },
    { only: { undefined: undefined } },
    { ['__proto__']: 'own', list: Array.from({ length: 1200 }, (_, at) => ({ at })) },
  ];
  for (const document of documents) assert.equal(whole(goJsonParts(document)), goJson(document, 0));
});
