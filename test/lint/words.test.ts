/** The lint rule about the first words of comments. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

type ProblemsOf = (path: string, text: string) => string[];

const SCRIPT = join(import.meta.dirname, '../../../scripts/lint-words.mjs');
const { problemsOf } = (await import(SCRIPT)) as { readonly problemsOf: ProblemsOf };

test('a comment does not begin with a word that makes the reader wait', () => {
  const bad = ['/** What it is. */', '/**\n * Of a thing.\n */', '  // Whoever reads this.', 'call();\n// Who it was.'];
  for (const text of bad) assert.match(problemsOf('a.ts', text)[0] ?? 'nothing', /^a\.ts:[12]: a comment begins/, text);
  const good = [
    '/** Whether it is open. */',
    '/**\n * A thing\n * Of a sort.\n */',
    '// It is told\n// What is there.',
    "call('What is it');",
  ];
  for (const text of good) assert.deepEqual(problemsOf('a.ts', text), [], text);
});
