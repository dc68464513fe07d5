/**
 * Runs somebody else's tests against dockerd and against this engine, each in a sandbox of its own, and prints what
 * came of them side by side. The program that runs them is one of test/compare: it writes the outcome of each test to a
 * file.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { ROOT } from './ensure-packages.mjs';
import { endSandboxes, runInSandbox } from './sandbox.mjs';

const LIMIT_MS = 2 * 3600_000;
const LINES = 60;
const MESSAGE_LINES = 8;
const ENGINES = ['dockerd', 'engined'];
const STATES = ['passed', 'failed', 'skipped'];

/** Runs all tests against one engine, and returns what its results file says. */
async function runAgainst(engine, { program, args, onBtrfs = false }, directory) {
  const [log, results] = [join(directory, `${engine}.log`), join(directory, `${engine}.json`)];
  const path = join(ROOT, 'dist', 'test', 'compare', `${program}.js`);
  // Some of the tests make memory segments that processes share.
  const { status } = await runInSandbox(['unshare', '--ipc', process.execPath, path, engine, results, ...args], {
    cwd: ROOT,
    log,
    onBtrfs,
    timeoutMs: LIMIT_MS,
  });
  if (status !== 0 || !existsSync(results))
    throw new Error(`${engine}: ${status}\n${readFileSync(log, 'utf8').split('\n').slice(-LINES).join('\n')}`);
  return JSON.parse(readFileSync(results, 'utf8'));
}

function printCounts(sides, partOf) {
  const parts = [...new Set(sides.flatMap(({ outcomes }) => outcomes.map(({ name }) => partOf(name))))].toSorted();
  const counts = ({ outcomes }, part) => {
    const of = outcomes.filter(({ name }) => part === undefined || partOf(name) === part);
    return STATES.map((state) => of.filter((outcome) => outcome.state === state).length).join(' / ');
  };
  const row = (title, part) => `| ${title} | ${sides.map((side) => counts(side, part)).join(' | ')} |`;
  console.log(`| ${STATES.join(' / ')} | ${sides.map(({ engine }) => engine).join(' | ')} |`);
  console.log(`| --- | ${sides.map(() => '---').join(' | ')} |`);
  for (const part of parts) console.log(row(part, part));
  console.log(row('all'));
}

/** Prints each test that failed somewhere. Returns how many failed with this engine alone. */
function printFailures([theirs, ours], isChance) {
  const byName = new Map(theirs.outcomes.map((outcome) => [outcome.name, outcome]));
  let alone = 0;
  for (const own of ours.outcomes) {
    const other = byName.get(own.name);
    const differ = own.state !== other?.state;
    if (own.state !== 'failed' && other?.state !== 'failed') continue;
    if (own.state === 'failed' && differ && !isChance(own.message)) alone++;
    console.log(`\n${differ ? '!' : '='} ${own.name}: dockerd ${other?.state}, engined ${own.state}`);
    for (const [engine, one] of [
      ['dockerd', other],
      ['engined', own],
    ])
      if (one?.message !== undefined)
        console.log(`    ${engine}: ${one.message.split('\n').slice(0, MESSAGE_LINES).join('\n      ')}`);
  }
  return alone;
}

/**
 * Runs a program of test/compare against both engines, at the same time unless they take `turns`, and returns what each
 * of them wrote: `{ engine, outcomes }` of dockerd and of this engine, in that order.
 */
export async function runBoth({ turns = false, ...run }) {
  const directory = mkdtempSync(join(tmpdir(), `engined-${run.program}-`));
  for (const signal of ['SIGINT', 'SIGTERM'])
    process.on(signal, () => void endSandboxes().finally(() => process.exit(1)));
  try {
    if (!turns) return await Promise.all(ENGINES.map((engine) => runAgainst(engine, run, directory)));
    const found = [];
    for (const engine of ENGINES) found.push(await runAgainst(engine, run, directory));
    return found;
  } finally {
    await endSandboxes();
    rmSync(directory, { recursive: true, force: true });
  }
}

/**
 * Runs the tests, and prints the table and the failures. `partOf` names the row of a test, `isCounted` leaves tests
 * out, and `isChance` says of a message that the failure is one of chance. Throws an Error when a test fails with this
 * engine that passes with dockerd.
 */
export async function runSideBySide({ partOf, isCounted = () => true, isChance = () => false, ...run }) {
  const sides = (await runBoth(run)).map(({ engine, outcomes }) => ({
    engine,
    outcomes: outcomes.filter(({ name }) => isCounted(name)),
  }));
  printCounts(sides, partOf);
  const alone = printFailures(sides, isChance);
  if (alone > 0) throw new Error(`${alone} tests fail with engined alone`);
}
