/** The lint rule that keeps the paths in documents true. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';

type ProblemsOf = (document: string, text: string, exists: (path: string) => boolean) => string[];

const SCRIPT = join(import.meta.dirname, '../../../scripts/lint-docs.mjs');
const { problemsOf } = (await import(SCRIPT)) as { readonly problemsOf: ProblemsOf };
const problems = (text: string): string[] =>
  problemsOf('a.md', text, (path) => ['src/main.ts', 'src/http', 'src/http/'].includes(path));

test('a path in backticks that does not exist is refused', () => {
  assert.deepEqual(problems('See `src/main.ts`.\nSee `src/gone.ts` and `npm test -- test/gone`.'), [
    'a.md:2: there is no src/gone.ts',
    'a.md:2: there is no test/gone',
  ]);
  assert.deepEqual(problems('```sh\ncat src/x.ts\n```\n`node\nscripts/gone.mjs`'), [
    'a.md:4: there is no scripts/gone.mjs',
  ]);
  for (const text of ['`src/http`, `src/http/`', 'src/gone.ts', '`dist/src/gone.js`', '```\nsrc/gone.ts `x`\n```'])
    assert.deepEqual(problems(text), [], text);
});
