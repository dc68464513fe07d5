/**
 * Runs the compiled tests: those beside sources in one process (import-tests.mjs says why), each file of test/, which
 * start real daemons, in a sandbox of its own, or with others that may share a daemon, several at a time. What a file
 * made goes with its sandbox, so a failing file stays alone.
 *
 *   node scripts/run-tests.mjs [part-of-a-path | compiled-file.js ...]
 *
 * A file that fails is run once more, by itself and on the machine's disk, when all others are done: a fault shows
 * again, a race between the test and a busy machine mostly not. The report names each such file, and the race still
 * wants mending.
 */
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { availableParallelism, freemem, tmpdir } from 'node:os';
import { basename, join, relative } from 'node:path';
import { ROOT } from './ensure-packages.mjs';
import { endSandboxes, runInSandbox } from './sandbox.mjs';

/** A file that hangs is ended after this time. Long runs, as with LIVES_COUNT=10000, are of files that are named. */
const FILE_TIMEOUT_MS = process.argv.length > 2 ? 24 * 3600_000 : 15 * 60_000;
/** Files that run one after the other have so much more for each of them, but three times as long at most. */
const NEXT_FILE_MS = 60_000;
const IMPORT_TESTS = join(ROOT, 'scripts', 'import-tests.mjs');
const RUN_ONE = [
  // All processors are busy: threads that compile and collect beside the tests only add work of their own. With
  // --single-threaded, which says both, V8 does not take the code of Node's own modules that was compiled with Node.
  ...['--single-threaded-gc', '--no-concurrent-recompilation'],
  '--test-force-exit',
  ...['--test-reporter', join(ROOT, 'scripts', 'test-report.mjs'), '--test-reporter-destination', 'stdout'],
];
/** These run in a virtual machine (scripts/test-vm.mjs). */
const IN_MACHINE = 'vm/';
const COMPILED = join(ROOT, 'dist');
/** Most of the time a test waits for something: a container that starts, a timer, a disk. */
const FILES_PER_PROCESSOR = 3;
/** These are run as those beside the sources. */
const WITHOUT_DAEMON = 'test/lint';
/**
 * The files of each of these groups run in one process, in this order, and share a daemon (test/support/
 * shared-engine.ts): they start one without options, and none ends it for good, changes its configuration, or leaves
 * what has no name in the API. Those that start many programs come first, and those with much data last: to start a
 * program takes the longer the more memory the process has.
 */
const SHARING = [
  [
    ...['containers/host-config', 'containers/stats', 'containers/exec', 'containers/export', 'http/attach-ws'],
    ...['http/refusals-and-views', 'network/families'],
  ],
  [
    ...['storage/volumes', 'storage/volume-mounts', 'storage/volume-plugins', 'network/endpoint-options'],
    ...['streams/ends-of-runs', 'streams/logs-options'],
  ],
  [
    ...[
      'build/remote-bake',
      'build/calls',
      'build/classic-build',
      'build/classic-stream',
      'images/registry-api',
      'streams/stream-files',
    ],
    ...[
      'security/one-line',
      'security/long-paths',
      'security/hostile-patterns',
      'security/inherited-names',
      'security/known-overloads',
    ],
    ...['security/hostile-documents', 'security/cost-fuzz'],
  ],
  [
    ...['containers/lifecycle', 'containers/container-list', 'containers/container-update', 'containers/legacy-links'],
    ...['network/network-connect', 'network/networks-api', 'network/parent-networks', 'containers/archive'],
  ],
  ['build/build-version-2', 'build/platforms', 'build/remote-contexts', 'build/run-mounts', 'build/sbom'],
  ['build/buildx', 'build/outputs', 'build/provenance', 'build/kills'],
  ['build/cache-exchange', 'build/vanishing-clients', 'build/pushes'],
  ['clients/compose', 'clients/compose-today', 'clients/build-clients'],
  [
    ...['network/network-plugins', 'streams/logs-remote', 'streams/logs-crash', 'security/known-vulnerabilities'],
    ...['containers/exits', 'containers/cycles'],
  ],
  // These want a registry, too.
  [
    ...['clients/cli', 'clients/cli-background', 'clients/curl', 'clients/dockerode', 'containers/health'],
    ...['http/api-versions'],
  ],
  [
    ...['build/solve', 'images/images-pull-tls', 'images/images-api', 'images/save-load', 'containers/crash'],
    'images/progress',
  ],
  // These have no daemon, but load much of its code, which they share.
  [
    ...['build/sources', 'containers/runtime-spec', 'build/door', 'images/registry-ways', 'build/dockerfile-problems'],
    ...['security/hostile-neighbours', 'http/tls-terminator', 'http/http-front', 'http/http-streams'],
    ...['http/chunked-requests', 'http/absent-parts', 'http/slow-clients', 'images/images-pull-tokens'],
    ...['images/images-pull-faults', 'images/images-pull-ahead', 'images/fetch-layer', 'images/images-pull'],
  ],
  // These start daemons with options of their own, and share what a process loads.
  [
    ...['daemon/state-version', 'daemon/reload-groups', 'daemon/config-files', 'security/scoped-sockets'],
    ...['http/newest-versions', 'security/audit', 'http/api-details', 'security/size-limits'],
    ...['security/hostile-requests', 'security/fuzz-authorization'],
  ],
  [
    ...['images/proxies', 'images/registries', 'security/authorization-start', 'daemon/validate'],
    ...['daemon/prometheus', 'daemon/process', 'containers/cdi', 'containers/creation-defaults'],
    'images/image-manifests',
  ],
  [
    ...['containers/runtimes', 'daemon/metrics', 'build/cache', 'build/run', 'containers/departures'],
    ...['daemon/traces', 'security/bad-input', 'security/fuzz', 'security/hostile-archives'],
  ],
  // So do these, whose daemons have users of their own. The last three share one, and the last one ends it.
  [
    ...['containers/userns-auto', 'containers/userns-options', 'containers/userns-shown'],
    ...['build/run-userns', 'containers/userns-files', 'containers/userns'],
  ],
  ['network/network', 'network/user-networks', 'network/names', 'network/foreign-bridges'],
].map((names) => new Set(names.map((name) => join(COMPILED, 'test', `${name}.test.js`))));
/**
 * Names of files that take longest, in the order in which they begin. Many of them mostly wait, and so are not the
 * largest ones.
 */
const LONGEST_FIRST = [
  ...['table', 'driver-snapshotter', 'snapshotter-daemon', 'multi-platform', 'ssh', 'btrfs-daemon', 'loopback-ports'],
  ...['full-disk', 'network-flags', 'published-ports', 'quickstart', 'migrate', 'push', 'socket-activation', 'tls'],
  ...['addresses', 'nftables-modes', 'reload', 'authorization', 'driver-overlay2', 'load', 'flag-effects'],
  ...['start-up', 'streams', 'guides', 'shutdown', 'rootless', 'snapshotter-made', 'stores', 'garbage'],
  ...['gateway-modes', 'handover', 'pipelined-hijack', 'driver-btrfs', 'driver-directory', 'driver-fuse-overlayfs'],
  ...['request-ends', 'fsck', 'isolation', 'output-kills', 'drivers-agree', 'firewall-flush', 'upgrade', 'package'],
  ...['fuse-daemon', 'several-daemons', 'empty-input', 'retries', 'archive-upload', 'system-df'],
  ...['restart-without-gap', 'testcontainers', 'network-crash', 'push-as-pulled', 'backend-change', 'archive-limits'],
  ...['events', 'large-streams', 'growing-layer'],
];
/**
 * Names of files that compute a quarter of their time at most. One of these runs beside the others at any time, which
 * has less of the processors idle and slows the others down little. Together they take less than a whole run does, as
 * several of them at its end would leave the processors idle.
 */
const WAITING = new Set([
  ...['resume', 'managed-plugins', 'supervisor-restart', 'shim-death', 'parallel-ranges', 'faults', 'faults-transfers'],
]);
/**
 * The temporary files of tests are in memory where the machine has enough of it, because nobody waits for a disk then,
 * and a journal takes no processor time. Those of test/storage, where the drivers' contract is tested on the machine's
 * file system, are on the disk. TESTS_ON_DISK=1 has all of them there.
 */
const IN_MEMORY = /\/dist\/(?!test\/storage\/)/;
const MEMORY_BYTES = 6 * 2 ** 30;
/** Daemons have their data there when they are tested with that storage driver (test/support/tested-store.ts). */
const onBtrfs = process.env.ENGINE_TEST_STORE === 'btrfs';
const usesMemory = process.env.TESTS_ON_DISK === undefined && freemem() > MEMORY_BYTES;

const named = process.argv.slice(2).filter((argument) => argument.endsWith('.js'));
const parts = process.argv.slice(2).filter((argument) => !argument.endsWith('.js'));
const directory = mkdtempSync(join(tmpdir(), 'engined-report-'));
let runs = 0;

/** Compiled counterparts of the sources that exist: a build directory may still hold tests of deleted files. */
function testFiles(dir) {
  if (named.length > 0 && parts.length === 0) return [];
  return readdirSync(join(ROOT, dir), { recursive: true })
    .filter((path) => path.endsWith('.test.ts') && !path.startsWith(IN_MACHINE))
    .map((path) => join(dir, path))
    .filter((path) => parts.length === 0 || parts.some((part) => path.includes(part)))
    .toSorted()
    .map((path) => join(COMPILED, path.replace(/ts$/, 'js')));
}

/**
 * Runs files in one process, prints their report when they are done, and gives their counts and what failed.
 * @param inMemory where their own files are.
 */
async function runFiles(files, inMemory = usesMemory && files.every((file) => IN_MEMORY.test(file))) {
  const id = (runs += 1);
  const [log, summary] = [join(directory, `${id}.log`), join(directory, `${id}.json`)];
  const started = Date.now();
  const program = files.length === 1 ? files : [IMPORT_TESTS, ...files];
  const shares = files.length > 1 && SHARING.some((group) => group.has(files[0]));
  const { status, cpuSeconds } = await runInSandbox([process.execPath, ...RUN_ONE, ...program], {
    cwd: ROOT,
    log,
    timeoutMs: Math.min(FILE_TIMEOUT_MS + (files.length - 1) * NEXT_FILE_MS, 3 * FILE_TIMEOUT_MS),
    inMemory,
    onBtrfs,
    env: { TEST_SUMMARY: summary, ...(shares && { TEST_SHARES_ENGINE: '1' }) },
  });
  const title = files.length === 1 ? relative(COMPILED, files[0]) : `${files.length} files`;
  const seconds = Math.round((Date.now() - started) / 1000);
  console.log(`# ${title} (${seconds} s, ${Math.round(cpuSeconds)} s of CPU)`);
  console.log(readFileSync(log, 'utf8').trimEnd());
  if (existsSync(summary)) {
    const result = JSON.parse(readFileSync(summary, 'utf8'));
    if (status === 0 || result.failures.length > 0) return result;
  }
  console.log(`✖ ${title}: ${typeof status === 'number' ? `exit status ${status}` : status}`);
  return { counts: { tests: 1, fail: 1 }, failures: [{ name: `${title} (${status})`, file: files[0] }] };
}

/** Makes the image files that many tests begin with. A failure is left to the first test that needs them. */
async function makeSeed() {
  const program = join(COMPILED, 'test', 'support', 'make-seed.js');
  await runInSandbox([process.execPath, program], {
    cwd: ROOT,
    log: join(directory, 'seed.log'),
    timeoutMs: FILE_TIMEOUT_MS,
  });
}

/**
 * Takes groups of files from the front of the first of `queues` that has any, until all are empty. Each begins when
 * what it needs is there.
 */
async function work(queues, results) {
  const next = () => queues.find((queue) => queue.length > 0)?.shift();
  for (let group = next(); group !== undefined; group = next()) {
    await group.needs;
    results.set(group.files, await runFiles(group.files));
  }
}

/** Takes those of `files` out of it that share a daemon, and returns their groups, each in its own order. */
function takeSharing(files) {
  const groups = SHARING.map((group) => [...group].filter((file) => files.includes(file)));
  for (const file of groups.flat()) files.splice(files.indexOf(file), 1);
  return groups;
}

/** The long files first, then the largest: none that takes long shall begin when all others are done. */
function longestFirst(files) {
  const names = LONGEST_FIRST.toReversed();
  const rank = (file) => names.indexOf(basename(file, '.test.js'));
  return files.toSorted((a, b) => statSync(b).size - statSync(a).size).toSorted((a, b) => rank(b) - rank(a));
}

async function runAll() {
  const units = ['src', 'bench', WITHOUT_DAEMON].flatMap((dir) => testFiles(dir));
  const others = longestFirst([...named, ...testFiles('test')]).filter((file) => !units.includes(file));
  const sharing = takeSharing(others);
  // Each file would make the seed otherwise, all at the same time. Those beside the sources do without.
  const seed = others.length + sharing.flat().length > 0 ? makeSeed() : undefined;
  const queue = [
    { files: units },
    ...[...sharing, ...others.map((file) => [file])].map((files) => ({ files, needs: seed })),
  ].filter(({ files }) => files.length > 0);
  const results = new Map();
  const waits = ({ files }) => files.length === 1 && WAITING.has(basename(files[0], '.test.js'));
  const [waiting, computing] = [queue.filter(waits), queue.filter((group) => !waits(group))];
  const width = availableParallelism() * FILES_PER_PROCESSOR;
  await Promise.all([
    work([waiting, computing], results),
    ...Array.from({ length: width }, () => work([computing, waiting], results)),
  ]);
  const again = [...results].filter(([, { failures }]) => failures.length > 0);
  const recovered = [];
  for (const [files, first] of again) {
    results.delete(files);
    const isSharing = sharing.includes(files);
    const seconds = [];
    for (const own of isSharing ? files.map((file) => [file]) : [files]) {
      const second = await runFiles(own, false);
      results.set(own, second);
      seconds.push(second);
    }
    if (seconds.every(({ failures }) => failures.length === 0)) recovered.push(...first.failures);
  }
  report([...results.values()], recovered);
}

function report(results, recovered) {
  const totals = new Map();
  for (const { counts } of results) {
    for (const [name, value] of Object.entries(counts)) totals.set(name, (totals.get(name) ?? 0) + value);
  }
  const failures = results.flatMap((result) => result.failures);
  console.log('');
  for (const { name, file } of recovered)
    console.log(`! passed only when run again: ${relative(COMPILED, file)}: ${name}`);
  for (const { name, file } of failures) console.log(`✖ ${relative(COMPILED, file)}: ${name}`);
  for (const name of ['tests', 'suites', 'pass', 'fail', 'cancelled', 'skipped', 'todo'])
    console.log(`ℹ ${name} ${totals.get(name) ?? 0}`);
  console.log(`ℹ duration_ms ${Math.round(process.uptime() * 1000)}`);
  if ((totals.get('tests') ?? 0) === 0) console.error(`no test file matches ${parts.join(' ')}`);
  process.exitCode = failures.length === 0 && (totals.get('tests') ?? 0) > 0 ? 0 : 1;
}

let isEnding = false;

/** Ends the run and takes its sandboxes away, once, however many signals come meanwhile. */
async function endEarly() {
  if (isEnding) return;
  isEnding = true;
  await endSandboxes();
  rmSync(directory, { recursive: true, force: true });
  process.exit(1);
}

for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP']) process.on(signal, () => void endEarly());
try {
  await runAll();
} finally {
  await endSandboxes();
  rmSync(directory, { recursive: true, force: true });
}
