/**
 * Rules about documents. Part of `npm run lint`.
 * - They name files that exist: each path in backticks of README.md and docs/*.md that begins with a directory of the
 *   sources is one in this repository.
 * - README.md has lines of 120 characters at most, tables too, because it is read in terminals. Those below docs/ are
 *   made into pages (`npm run docs`), and their tables have a line for each row, however long it is.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { longLines } from './lint-shape.mjs';

const ROOT = join(fileURLToPath(import.meta.url), '..', '..');

/** Code within a line, and code that a line break cuts in two. Blocks of code are left out before. */
const BLOCK = /^```.*?^```/gms;
const CODE = /`([^`]+)`/g;
const PATH = /(?<![\w./-])(?:src|test|scripts|packaging)\/[\w./-]*/g;

/** Returns a text for each path of a document that `exists` does not know. */
export function problemsOf(document, text, exists) {
  const prose = text.replace(BLOCK, (block) => block.replace(/[^\n]/g, ''));
  return [...prose.matchAll(CODE)].flatMap(({ 1: code, index }) =>
    [...code.matchAll(PATH)]
      .filter(([path]) => !exists(path))
      .map(([path]) => `${document}:${prose.slice(0, index).split('\n').length}: there is no ${path}`),
  );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const documents = ['README.md', ...readdirSync(join(ROOT, 'docs')).map((name) => `docs/${name}`)];
  const problems = documents
    .filter((document) => document.endsWith('.md'))
    .flatMap((document) =>
      problemsOf(document, readFileSync(join(ROOT, document), 'utf8'), (path) => existsSync(join(ROOT, path))),
    );
  const long = longLines([['README.md', readFileSync(join(ROOT, 'README.md'), 'utf8')]]);
  problems.push(...long.map(({ problem }) => problem));
  for (const problem of problems) console.error(problem);
  if (problems.length > 0) process.exitCode = 1;
}
