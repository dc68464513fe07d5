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

/** Returns what is too large in each of the texts. The linter starts once for all of them. */
function inParts(texts: readonly string[]): string[][] {
  const names = texts.map((_, at) => `s${at}.ts`);
  for (const [at, text] of texts.entries()) writeFileSync(join(folder, `s${at}.ts`), text);
  const places = largeParts(names, folder).map(({ place }) => place);
  return names.map((name) =>
    places.filter((place) => place.split('#')[0] === name).map((place) => place.slice(name.length)),
  );
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
  const cases: readonly (readonly [text: string, ...places: string[]])[] = [
    [`export function large() {\n${lines(69)}}`, '#large'],
    [`export const large = () => {\n${lines(69)}};`, '#large'],
    [`test('large', () => {\n${lines(69)}});`, '#large'],
    [`describe('table', () => {\ntest('large', () => {\n${lines(69)}});\n});`, '#large'],
    ['export function many(a, b, c, d, e, f) {}', '#many'],
    ['class A {\n  constructor(a, b, c, d, e, f) {}\n}', '#constructor'],
    [lines(401), ''],
    [`function full(a, b, c, d, e) {\n${lines(68)}}`],
    [`function full() {\n${lines(68)}\n// Why.\n}`],
    [`describe('table', () => {\n${lines(80)}});`],
  ];
  const found = inParts(cases.map(([text]) => text));
  for (const [at, [text, ...places]] of cases.entries()) assert.deepEqual(found[at], places, text);
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
