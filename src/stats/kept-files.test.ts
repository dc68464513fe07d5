import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { KEPT_MS, KeptFiles } from './kept-files.js';

test('files stay open while they are read, but not for longer, and only so many', (t) => {
  const root = mkdtempSync(join(tmpdir(), 'engined-kept-'));
  t.after(() => rmSync(root, { recursive: true }));
  const [a, b] = [join(root, 'a'), join(root, 'b')];
  for (const [dir, name] of [
    [a, 'one'],
    [a, 'two'],
    [b, 'one'],
    [b, 'two'],
  ] as const) {
    mkdirSync(dir, { recursive: true });
    writeFileSync(join(dir, name), `${dir} ${name}`);
  }
  let now = 2 * KEPT_MS;
  const files = new KeptFiles(() => now, 3);
  const readAll = (...dirs: string[]): void => {
    files.begin();
    for (const dir of dirs)
      for (const name of ['one', 'two', 'missing'])
        assert.equal(files.read(dir, name), name === 'missing' ? undefined : `${dir} ${name}`);
  };
  readAll(a, b);
  assert.equal(files.count, 3);
  writeFileSync(join(a, 'one'), 'longer than before, and read anew');
  assert.equal(files.read(a, 'one'), 'longer than before, and read anew');
  writeFileSync(join(a, 'one'), 'x'.repeat(100_000));
  assert.equal(files.read(a, 'one')?.length, 100_000);
  now += 0.8 * KEPT_MS;
  files.begin();
  files.read(b, 'one');
  now += 0.8 * KEPT_MS;
  files.begin();
  assert.equal(files.count, 1);
  now += 1.2 * KEPT_MS;
  files.begin();
  assert.equal(files.count, 0);
});

test('where the daemon may have few files open, most are left to others', () => {
  const script = `const { KeptFiles } = await import(process.argv[1]);
const files = new KeptFiles();
for (const name of ['stat', 'status', 'cgroup', 'limits', 'maps'])
  for (const directory of ['self', 'thread-self', ...Array.from({ length: 40 }, (_, at) => './'.repeat(at) + 'self')])
    if (files.read('/proc/' + directory, name) === undefined) throw new Error(name);
console.log(files.count);`;
  const module = new URL('kept-files.js', import.meta.url).href;
  const command = 'ulimit -n 256; exec "$0" --input-type=module -e "$1" "$2"';
  const shown = execFileSync('sh', ['-c', command, process.execPath, script, module], { encoding: 'utf8' });
  assert.equal(shown, '64\n');
});
