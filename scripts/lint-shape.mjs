/**
 * Rules about size, for src, test, bench and scripts. Part of `npm run lint`.
 * - A line has at most 120 characters. A longer string is put together from several; a longer regular expression is
 *   one of several, or made from a string.
 * - A function has at most 70 lines, without empty lines and comments, and at most 5 positional parameters. `describe`
 *   may have more lines, because it is a table of tests; each test in it may not.
 * - A file has at most 400 lines.
 * Exceptions are listed here with their reasons; an entry that nothing needs any more is an error.
 */
import { spawnSync } from 'node:child_process';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = join(fileURLToPath(import.meta.url), '..', '..');
const FOLDERS = ['src', 'test', 'bench', 'scripts'];
const GENERATED = ['src/ports/proto/', 'src/supervisor/proto/', 'src/http/buildkit/proto/'];
const MAX_COLUMNS = 120;

const TABLE = 'a table: one row is one line';

/** Files with longer lines. */
export const LONG_LINES = new Map([
  ['src/config/options.ts', TABLE],
  ['src/main.ts', 'the kernel reads the command of a script from one line'],
  ['test/compare/effects.ts', TABLE],
]);

const HOT = 'called for each record of a log: an object for the parameters would cost';

/**
 * Files with more lines, functions with more lines or parameters: `file` or `file#function`. A test is named by the
 * last word before it.
 */
export const LARGE = new Map([
  ['src/logs/drivers/json-encoder.ts#encode', HOT],
  ['src/logs/drivers/local-record.ts#encode', HOT],
  ['src/logs/writing/log-writer.ts#record', HOT],
  ['test/compare/bad-values.ts', TABLE],
  ['test/compare/effects.ts', TABLE],
]);

/** Returns a problem for each line that is too long. @param sources pairs of a path and a text. */
export function longLines(sources) {
  return sources.flatMap(([path, text]) =>
    text.split('\n').flatMap((row, index) => {
      const length = [...row].length;
      return length <= MAX_COLUMNS
        ? []
        : [{ place: path, problem: `${path}:${index + 1}: the line has ${length} characters` }];
    }),
  );
}

/** Returns what oxlint finds about functions and files, without the callbacks of `describe`. */
export function largeParts(paths, cwd = ROOT) {
  const { stdout } = spawnSync(
    process.execPath,
    [
      join(ROOT, 'node_modules/oxlint/bin/oxlint'),
      ...['-c', join(ROOT, 'scripts/lint/shape.oxlintrc.json'), '-f', 'json', ...paths],
    ],
    { cwd, encoding: 'utf8', maxBuffer: 1 << 26 },
  );
  const sources = new Map();
  return JSON.parse(stdout).diagnostics.flatMap(({ message, code, filename, labels }) => {
    const { line, offset } = labels[0].span;
    if (!sources.has(filename)) sources.set(filename, readFileSync(join(cwd, filename)));
    const before = sources.get(filename).subarray(0, offset).toString();
    const isFile = code.includes('(max-lines)');
    if (!isFile && isTableOfTests(before)) return [];
    const place = isFile ? filename : `${filename}#${nameOf(message, before)}`;
    return [{ place, problem: `${filename}:${line}: ${message}` }];
  });
}

/** @param before what stands before the function. */
function isTableOfTests(before) {
  return /^\s*describe\b/.test(before.slice(before.lastIndexOf('\n') + 1));
}

function nameOf(message, before) {
  return /`(.+)`/.exec(message)?.[1] ?? /'(.+)'/.exec(message)?.[1] ?? /([\w$]+)\W*$/.exec(before)?.[1] ?? '';
}

/** The problems that no entry allows, and the entries that allow nothing. */
export function judge(found, allowed, list) {
  const places = new Set(found.map(({ place }) => place));
  return [
    ...found.filter(({ place }) => !allowed.has(place)),
    ...[...allowed.keys()]
      .filter((place) => !places.has(place))
      .map((place) => ({ place: '', problem: `scripts/lint-shape.mjs: nothing needs ${place} in ${list} any more` })),
  ];
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const sources = FOLDERS.flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true }).map((path) => `${folder}/${path}`),
  )
    .filter((path) => /\.(?:ts|mjs)$/.test(path) && !GENERATED.some((folder) => path.startsWith(folder)))
    .toSorted()
    .map((path) => [path, readFileSync(join(ROOT, path), 'utf8')]);
  const large = largeParts(FOLDERS).filter(({ place }) => !GENERATED.some((folder) => place.startsWith(folder)));
  const problems = [...judge(longLines(sources), LONG_LINES, 'LONG_LINES'), ...judge(large, LARGE, 'LARGE')];
  for (const { problem } of problems) console.error(problem);
  if (problems.length > 0) process.exitCode = 1;
}
