/**
 * Storage drivers stay behind their contract. Part of `npm run lint`: outside src/storage/drivers no source imports
 * from the folder of a driver, and none names what only a driver knows, such as a path of its store.
 */
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

const ROOT = join(fileURLToPath(import.meta.url), '..', '..');
const DRIVERS = 'storage/drivers/';

/** These names are a driver's own: directories of its store, members of its part of inspect. Add those of a new one. */
const OWN = new RegExp(
  [
    /\boverlay2\//,
    /\b(?:btrfs|fuse-overlayfs)\/(?:layers|index|writable|staging|trash)\b/,
    /\b(?:Merged|Upper|Lower|Work)Dir\b/,
  ]
    .map(({ source }) => source)
    .join('|'),
);

/** The configuration of a plugin has a member of such a name, too. */
const NAMED_ALIKE = 'http/api/plugin-view.ts';

const IMPORT = /(?:from|import)[\s(]*'(\.[^']+)'/;

/** Returns a text for each problem in the sources, which are pairs of a path below src and a text. */
export function problemsOf(sources, folders) {
  const isDrivers = (path) => folders.some((folder) => path.startsWith(`${DRIVERS}${folder}/`));
  return sources
    .filter(([path]) => !path.startsWith(DRIVERS))
    .flatMap(([path, text]) =>
      text.split('\n').flatMap((line, i) => {
        const at = `src/${path}:${i + 1}`;
        const [, imported] = IMPORT.exec(line) ?? [];
        if (imported && isDrivers(join(dirname(path), imported)))
          return [`${at}: a storage driver is found by the table in src/${DRIVERS}index.ts`];
        const own = path === NAMED_ALIKE ? null : OWN.exec(line);
        return own ? [`${at}: ${own[0]} is the business of a storage driver: ask the layer store`] : [];
      }),
    );
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const src = join(ROOT, 'src');
  const folders = readdirSync(join(src, DRIVERS), { withFileTypes: true }).filter((entry) => entry.isDirectory());
  const sources = readdirSync(src, { recursive: true })
    .filter((path) => path.endsWith('.ts'))
    .map((path) => [path, readFileSync(join(src, path), 'utf8')]);
  const problems = problemsOf(
    sources,
    folders.map(({ name }) => name),
  );
  for (const problem of problems) console.error(problem);
  if (problems.length > 0) process.exitCode = 1;
}
