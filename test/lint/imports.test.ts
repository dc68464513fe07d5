/** Imports against the direction, and circles of imports, are refused. */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdirSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, test } from 'node:test';

const ROOT = join(import.meta.dirname, '../../..');
/** The rooms from the bottom to the top; those of one floor may know each other. */
const BELOW_DRIVERS = [['errors'], ['ports', 'text'], ['sys']];
const ABOVE_DRIVERS = [['actors'], ['http'], ['composition']];
const drivers = readdirSync(join(ROOT, 'src'), { withFileTypes: true })
  .filter((entry) => entry.isDirectory() && ![...BELOW_DRIVERS, ...ABOVE_DRIVERS].flat().includes(entry.name))
  .map(({ name }) => name);
const FLOORS = [...BELOW_DRIVERS, drivers, ...ABOVE_DRIVERS];

const folder = mkdtempSync(join(tmpdir(), 'engined-imports-'));
after(() => rmSync(folder, { recursive: true }));

/** Returns the files that lint refuses for a rule, in a tree of these files. */
function refused(files: Readonly<Record<string, string>>, rule: string): string[] {
  rmSync(join(folder, 'src'), { recursive: true, force: true });
  copyFileSync(join(ROOT, '.oxlintrc.json'), join(folder, '.oxlintrc.json'));
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(join(folder, dirname(path)), { recursive: true });
    writeFileSync(join(folder, path), text);
  }
  const { stdout } = spawnSync(process.execPath, [join(ROOT, 'node_modules/oxlint/bin/oxlint'), '-f', 'json', 'src'], {
    cwd: folder,
    encoding: 'utf8',
    maxBuffer: 1 << 26,
  });
  const { diagnostics } = JSON.parse(stdout) as { diagnostics: { code: string; filename: string }[] };
  return [...new Set(diagnostics.filter(({ code }) => code.includes(rule)).map(({ filename }) => filename))].toSorted();
}

test('no room imports from a floor above it', () => {
  assert.ok(drivers.length > 10, 'there are drivers');
  const places = FLOORS.flatMap((rooms, floor) => rooms.map((room) => ({ room, floor })));
  const files: Record<string, string> = {};
  const against: string[] = [];
  for (const from of places) {
    files[`src/${from.room}/own.ts`] = 'export const a = 1;\n';
    for (const to of places) {
      if (from.room === to.room) continue;
      const path = `src/${from.room}/to-${to.room}.ts`;
      files[path] = `import { a } from '../${to.room}/own.js';\n\nexport const b = a;\n`;
      if (from.floor < to.floor) against.push(path);
    }
  }
  const found = refused(files, 'no-restricted-imports');
  assert.deepEqual(
    against.filter((path) => !found.includes(path)),
    [],
  );
  const down = found.filter((path) => !against.includes(path) && !path.startsWith('src/http/'));
  assert.deepEqual(down, [], 'imports from below are allowed; routes ask actors instead of most drivers');
});

test('no files import each other, nor only their types', () => {
  const circle = (keyword: string): Record<string, string> => ({
    'src/images/a.ts': `import { ${keyword}B } from './b.js';\n\nexport interface A {\n  readonly b: B;\n}\n`,
    'src/images/b.ts': `import { ${keyword}A } from './a.js';\n\nexport interface B {\n  readonly a: A;\n}\n`,
  });
  for (const keyword of ['', 'type ']) assert.notDeepEqual(refused(circle(keyword), 'no-cycle'), [], keyword);
});
