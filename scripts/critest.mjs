/**
 * npm run critest -- [--critest PROGRAM] [--cri-dockerd PROGRAM] [--focus EXPRESSION] [--peer VERSION]:
 * runs the validation tests of the Container Runtime Interface through cri-dockerd against dockerd and against this
 * engine, each in a sandbox of its own, and prints what came of them side by side. The two programs are statically
 * linked ones of the machine, found on PATH by default; nothing fetches them. Ends with status 1 when a test fails with
 * this engine that passes with dockerd.
 */
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { apt, findProgram, installPackages, ROOT } from './ensure-packages.mjs';
import { peerOf } from './peers.mjs';
import { command, prepare } from './prepare.mjs';
import { endSandboxes, runInSandbox } from './sandbox.mjs';

const LIMIT_MS = 2 * 3600_000;
const LINES = 60;
/** Debian's plugins of the Container Network Interface are on no PATH. */
const CNI_PLUGIN = '/usr/lib/cni/bridge';
/**
 * cri-dockerd links to logs as the engine writes them, and critest wants those of another format. A test that finds a
 * log still empty may pass, so which of these fail is chance.
 */
const OTHER_LOG_FORMAT = /^failed to parse timeStamp/;
const CAP_SYS_RESOURCE = 1n << 24n;
const ENGINES = ['dockerd', 'engined'];
const STATES = ['passed', 'failed', 'skipped'];

function readArguments() {
  const { rest } = peerOf(process.argv.slice(2));
  const text = { type: 'string' };
  const { values } = parseArgs({
    args: rest,
    options: { critest: text, 'cri-dockerd': text, focus: text },
  });
  const program = (name) => {
    const path = values[name] === undefined ? findProgram(name) : resolve(values[name]);
    if (path === undefined || !existsSync(path))
      throw new Error(`there is no ${name}: name the program with --${name}, or have it on PATH`);
    return path;
  };
  return { critest: program('critest'), criDockerd: program('cri-dockerd'), focus: values.focus };
}

/** cri-dockerd protects pod sandboxes from the kernel's killer, which takes a capability that root may lack. */
function warnOfScores() {
  const held = BigInt(`0x${/CapEff:\s*(\S+)/.exec(readFileSync('/proc/self/status', 'utf8'))[1]}`);
  if ((held & CAP_SYS_RESOURCE) === 0n)
    console.error(
      'this process lacks CAP_SYS_RESOURCE: with an unchanged cri-dockerd no sandbox will start, on either engine',
    );
}

/** Runs all tests against one engine, and returns what its results file says. */
async function runAgainst(engine, { critest, criDockerd, focus }, directory) {
  const [log, results] = [join(directory, `${engine}.log`), join(directory, `${engine}.json`)];
  const program = join(ROOT, 'dist', 'test', 'compare', 'critest.js');
  const args = [engine, results, critest, criDockerd, ...(focus === undefined ? [] : [focus])];
  // Some of the tests make memory segments that processes share.
  const { status } = await runInSandbox(['unshare', '--ipc', process.execPath, program, ...args], {
    cwd: ROOT,
    log,
    timeoutMs: LIMIT_MS,
  });
  if (status !== 0 || !existsSync(results))
    throw new Error(`${engine}: ${status}\n${readFileSync(log, 'utf8').split('\n').slice(-LINES).join('\n')}`);
  return JSON.parse(readFileSync(results, 'utf8'));
}

/** A part of critest is the first word group of a test's name. */
const partOf = (name) => name.split(' › ')[0].replace('[k8s.io] ', '');

/** The tests that are counted: ginkgo skips the benchmarks, which are no validation. */
const validations = ({ outcomes }) => outcomes.filter(({ name }) => !/benchmark/i.test(name));

function printCounts(sides) {
  const parts = [...new Set(sides.flatMap((side) => validations(side).map(({ name }) => partOf(name))))].toSorted();
  const counts = (side, part) => {
    const of = validations(side).filter(({ name }) => part === undefined || partOf(name) === part);
    return STATES.map((state) => of.filter((outcome) => outcome.state === state).length).join(' / ');
  };
  const row = (title, part) => `| ${title} | ${sides.map((side) => counts(side, part)).join(' | ')} |`;
  console.log(`| ${STATES.join(' / ')} | ${sides.map(({ engine }) => engine).join(' | ')} |`);
  console.log(`| --- | ${sides.map(() => '---').join(' | ')} |`);
  for (const part of parts) console.log(row(part, part));
  console.log(row('all'));
}

/** Prints each test that failed somewhere. Returns how many failed with this engine alone. */
function printFailures([theirs, ours]) {
  const byName = new Map(validations(theirs).map((outcome) => [outcome.name, outcome]));
  let alone = 0;
  for (const own of validations(ours)) {
    const other = byName.get(own.name);
    const differ = own.state !== other?.state;
    if (own.state !== 'failed' && other?.state !== 'failed') continue;
    if (own.state === 'failed' && differ && !OTHER_LOG_FORMAT.test(own.message)) alone++;
    console.log(`\n${differ ? '!' : '='} ${own.name}: dockerd ${other?.state}, engined ${own.state}`);
    for (const [engine, one] of [
      ['dockerd', other],
      ['engined', own],
    ])
      if (one?.message !== undefined)
        console.log(`    ${engine}: ${one.message.split('\n').slice(0, 8).join('\n      ')}`);
  }
  return alone;
}

await command('npm run critest', async () => {
  if (process.getuid() !== 0) throw new Error('the tests run real containers: run them as root');
  const options = readArguments();
  warnOfScores();
  prepare('test', process.env.ENGINE_PEER);
  installPackages({ ipcmk: 'util-linux' });
  if (!existsSync(CNI_PLUGIN)) apt(['install', '--no-install-recommends', 'containernetworking-plugins']);
  const directory = mkdtempSync(join(tmpdir(), 'engined-critest-'));
  for (const signal of ['SIGINT', 'SIGTERM'])
    process.on(signal, () => void endSandboxes().finally(() => process.exit(1)));
  try {
    const sides = await Promise.all(ENGINES.map((engine) => runAgainst(engine, options, directory)));
    printCounts(sides);
    const alone = printFailures(sides);
    if (alone > 0) throw new Error(`${alone} tests fail with engined alone`);
  } finally {
    await endSandboxes();
    rmSync(directory, { recursive: true, force: true });
  }
});
