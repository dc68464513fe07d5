/** The lint rules about strings of others find each kind of mistake again. */
import assert from 'node:assert/strict';
import { join } from 'node:path';
import { test } from 'node:test';
import { pathToFileURL } from 'node:url';

type Rule = (sources: readonly (readonly [path: string, text: string])[]) => string[];

const { problemsOf, unneeded } = (await import(
  pathToFileURL(join(import.meta.dirname, '../../../scripts/lint-strings.mjs')).href
)) as { problemsOf: Rule; unneeded: Rule };

function problems(text: string, path = 'http/some.ts'): string[] {
  return problemsOf([[path, text]]);
}

test('expressions that take more than linear time', () => {
  for (const bad of [
    '/^(a+)+$/',
    '/^(a|a)*$/',
    '/(x*)*y/',
    '/\\/+$/',
    '/\\s+$/',
    '/^([!-z]+):[ \\t]*([\\t -~]*?)[ \\t]*$/',
    '/"(?:[^"\\\\]|\\\\.)*"/g',
    '/\\{\\{(.*?)\\}\\}/',
    '/^a{0,500}a{0,500}b/',
    '/^(?=(a+)+$)/',
    '/([a-z]+)@/i',
    '/^x|y+z+y+$/',
  ])
    assert.match(
      problems(`const found = text.match(${bad});`)[0] ?? 'nothing',
      /takes (quadratic|exponential) time/,
      bad,
    );
  for (const good of [
    '/^\\d+$/',
    '/\\s+/',
    '/^"(?:[^"\\\\]|\\\\.)*"$/',
    '/^[a-z0-9]+(?:[._-][a-z0-9]+)*$/',
    '/:[^:/]*$/',
    '/^\\s*(\\S+)\\s*(.*)$/s',
    '/[^\\s/@:]+:/y',
  ]) {
    assert.deepEqual(problems(`const found = text.match(${good});`), [], good);
  }
});

test('texts that become expressions', () => {
  assert.match(
    problems('const a = 1;\nconst b = new RegExp(text);')[0] ?? '',
    /^src\/http\/some\.ts:2: a text becomes a regular expression/,
  );
  assert.deepEqual(problems("// new RegExp(text)\nconst b = 'new RegExp(text)';"), []);
});

test('look-ups by names of others', () => {
  for (const bad of [
    'const TABLE: Readonly<Record<string, number>> = {};\nreturn TABLE[name];',
    'function f(labels: Readonly<Record<string, string>> | null): void {\n  labels?.[name];',
    'interface A {\n  readonly labels?: Record<string, string>;\n}\nreturn record.labels[key.slice(1)];',
    'const map: Record<string, string> = {};\nmap[key] = value;',
    'const UNITS: Readonly<Record<string, number>> = {};\nconst text = `${UNITS[unit]}`;',
  ])
    assert.match(problems(bad)[0] ?? 'nothing', /finds inherited members/, bad);
  for (const good of [
    "const TABLE: Readonly<Record<string, number>> = {};\nreturn TABLE['a'];",
    'const list: string[] = [];\nreturn list[at];',
    '// labels: Record<string, string>\nreturn x.labels[at];',
  ])
    assert.deepEqual(problems(good), [], good);
});

test('entries that allow what is not there any more', () => {
  const entry = 'scripts/lint-strings.mjs: nothing needs http/router.ts values[i + 1] any more';
  const used = 'const values: Record<string, string> = {};\nreturn values[i + 1];';
  assert(!unneeded([['http/router.ts', used]]).includes(entry));
  assert(unneeded([['http/router.ts', used.replace('i + 1', 'i')]]).includes(entry));
  assert(unneeded([]).includes(entry));
});
