/**
 * Runs the compiled tests: those beside the sources two at a time, then those of test/, which start real daemons, one
 * by one; one report and one count for both. To be run in a network namespace of its own (see test.mjs).
 */
import { execFileSync } from 'node:child_process';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { run } from 'node:test';
import { spec as SpecReporter } from 'node:test/reporters';
import { ROOT } from './ensure-packages.mjs';

const FILE_TIMEOUT_MS = 300_000;
const COUNTER = /^(tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) ([\d.]+)$/;

const parts = process.argv.slice(2);

/** Compiled counterparts of the sources that exist: a build directory may still hold tests of deleted files. */
function testFiles(dir) {
  return readdirSync(join(ROOT, dir), { recursive: true })
    .filter((path) => path.endsWith('.test.ts'))
    .map((path) => join(dir, path))
    .filter((path) => parts.length === 0 || parts.some((part) => path.includes(part)))
    .toSorted()
    .map((path) => join(ROOT, 'dist', path.replace(/ts$/, 'js')));
}

/** Events of both runs; each run's own counts are held back and given as sums at the end. */
async function* allTests() {
  const totals = new Map();
  const runs = [
    { files: testFiles('src'), concurrency: 2 },
    { files: testFiles('test'), concurrency: 1 },
  ];
  for (const options of runs.filter(({ files }) => files.length > 0)) {
    for await (const event of run({ ...options, timeout: FILE_TIMEOUT_MS })) {
      const counter = event.type === 'test:diagnostic' && event.data.nesting === 0 && event.data.file === undefined ? COUNTER.exec(event.data.message) : null;
      if (event.type === 'test:fail') process.exitCode = 1;
      if (counter === null) yield event;
      else totals.set(counter[1], (totals.get(counter[1]) ?? 0) + Number(counter[2]));
    }
  }
  if ((totals.get('tests') ?? 0) === 0) {
    process.exitCode = 1;
    console.error(`no test file matches ${parts.join(' ')}`);
  }
  for (const [name, value] of totals) yield { type: 'test:diagnostic', data: { nesting: 0, message: `${name} ${value}` } };
}

// A new network namespace has its loopback down and nothing else; some tests want an address as a machine has one.
for (const command of [
  'link set lo up',
  'link add machine0 type veth peer name machine1',
  'link set machine1 up',
  'address add 192.0.2.2/24 dev machine0',
  'link set machine0 up',
]) {
  execFileSync('ip', command.split(' '));
}
Readable.from(allTests()).compose(new SpecReporter()).pipe(process.stdout);
