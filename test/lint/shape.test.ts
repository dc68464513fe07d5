/** The lint rules about size find what is too large, and allow what they say. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { pathToFileURL } from 'node:url';

interface Problem {
  readonly place: string;
  readonly problem: string;
}

interface Rules {
  longLines: (sources: readonly (readonly [path: string, text: string])[]) => Problem[];
  largeParts: (paths: readonly string[], cwd: string) => Problem[];
  judge: (found: readonly Problem[], allowed: ReadonlyMap<string, string>, list: string) => Problem[];
}

const { longLines, largeParts, judge } = (await import(
  pathToFileURL(join(import.meta.dirname, '../../../scripts/lint-shape.mjs')).href
)) as Rules;

const folder = mkdtempSync(join(tmpdir(), 'engined-shape-'));
after(() => rmSync(folder, { recursive: true }));

function inLines(text: string): string[] {
  return longLines([['src/some.ts', text]]).map(({ problem }) => problem);
}

function inParts(text: string): string[] {
  writeFileSync(join(folder, 'some.ts'), text);
  return largeParts(['some.ts'], folder).map(({ place }) => place);
}

const WORDS = 'word '.repeat(30);

test('lines over 120 characters', () => {
  for (const bad of [
    `// ${WORDS}`,
    `const a = [${'1, '.repeat(50)}];`,
    `const a = '${WORDS}';`,
    `test('${WORDS}', async () => {`,
    `const a = /${WORDS}/u;`,
    `const a = \`\n${WORDS}\n\`;`,
  ])
    assert.match(inLines(bad)[0] ?? 'nothing', /^src\/some\.ts:[12]: the line has \d{3} characters$/, bad);
  assert.deepEqual(inLines(`const a = ${'é'.repeat(109)};`), []);
});

test('functions over 70 lines or 5 parameters, and files over 400 lines', () => {
  const lines = (count: number): string => 'call();\n'.repeat(count);
  assert.deepEqual(inParts(`export function large() {\n${lines(69)}}`), ['some.ts#large']);
  assert.deepEqual(inParts(`export const large = () => {\n${lines(69)}};`), ['some.ts#large']);
  assert.deepEqual(inParts(`test('large', () => {\n${lines(69)}});`), ['some.ts#large']);
  assert.deepEqual(inParts(`describe('table', () => {\ntest('large', () => {\n${lines(69)}});\n});`), [
    'some.ts#large',
  ]);
  assert.deepEqual(inParts('export function many(a, b, c, d, e, f) {}'), ['some.ts#many']);
  assert.deepEqual(inParts('class A {\n  constructor(a, b, c, d, e, f) {}\n}'), ['some.ts#constructor']);
  assert.deepEqual(inParts(lines(401)), ['some.ts']);
  assert.deepEqual(inParts(`function full(a, b, c, d, e) {\n${lines(68)}}`), []);
  assert.deepEqual(inParts(`function full() {\n${lines(68)}\n// Why.\n}`), []);
  assert.deepEqual(inParts(`describe('table', () => {\n${lines(80)}});`), []);
});

test('what is allowed, and what is allowed in vain', () => {
  const found = [
    { place: 'a.ts', problem: 'a' },
    { place: 'b.ts#large', problem: 'b' },
  ];
  const allowed = new Map([
    ['b.ts#large', 'a table'],
    ['c.ts', 'a table'],
  ]);
  assert.deepEqual(
    judge(found, allowed, 'LIST').map(({ problem }) => problem),
    ['a', 'scripts/lint-shape.mjs: nothing needs c.ts in LIST any more'],
  );
});
