/**
 * A comment is a sentence that can be read once. Part of `npm run lint`: none begins with a word such as "Of" or
 * "What", because the reader would have to wait for the subject, and for the verb.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = join(fileURLToPath(import.meta.url), '..', '..');
const FOLDERS = ['src', 'test', 'bench', 'scripts'];
const GENERATED = ['src/ports/proto/', 'src/supervisor/proto/', 'src/http/buildkit/proto/'];

/** Lines of a comment with `//` that go on from the line before do not begin one. */
const BEGINNING =
  /^[ \t]*(?:\/\*\*?\s(?:\s*\*)?|(?<!^[ \t]*\/\/.*\n[ \t]*)\/\/)\s*(Of|What|Who|Whoever|Whom|Whose)\b/gm;

/** Returns a text for each comment that begins badly. */
export function problemsOf(path, text) {
  return [...text.matchAll(BEGINNING)].map(({ 0: found, 1: word, index }) => {
    const line = text.slice(0, index + found.length).split('\n').length;
    return `${path}:${line}: a comment begins with "${word}": begin with its subject`;
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const problems = FOLDERS.flatMap((folder) =>
    readdirSync(join(ROOT, folder), { recursive: true }).map((path) => `${folder}/${path}`),
  )
    .filter((path) => /\.(?:ts|mjs)$/.test(path) && !GENERATED.some((folder) => path.startsWith(folder)))
    .flatMap((path) => problemsOf(path, readFileSync(join(ROOT, path), 'utf8')));
  for (const problem of problems) console.error(problem);
  if (problems.length > 0) process.exitCode = 1;
}
