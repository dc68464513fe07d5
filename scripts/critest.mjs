/**
 * npm run critest -- [--critest PROGRAM] [--cri-dockerd PROGRAM] [--focus EXPRESSION] [--peer VERSION]:
 * runs the validation tests of the Container Runtime Interface through cri-dockerd against dockerd and against this
 * engine, each in a sandbox of its own, and prints what came of them side by side. The two programs are statically
 * linked ones of the machine, found on PATH by default; nothing fetches them. Ends with status 1 when a test fails with
 * this engine that passes with dockerd.
 */
import { existsSync, readFileSync } from 'node:fs';
import { resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { apt, findProgram, installPackages } from './ensure-packages.mjs';
import { peerOf } from './peers.mjs';
import { command, prepare } from './prepare.mjs';
import { runSideBySide } from './side-by-side.mjs';

/** Debian's plugins of the Container Network Interface are on no PATH. */
const CNI_PLUGIN = '/usr/lib/cni/bridge';
/**
 * cri-dockerd links to logs as the engine writes them, and critest wants those of another format. A test that finds a
 * log still empty may pass, so which of these fail is chance.
 */
const OTHER_LOG_FORMAT = /^failed to parse timeStamp/;
const CAP_SYS_RESOURCE = 1n << 24n;

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

/** A part of critest is the first word group of a test's name. */
const partOf = (name) => name.split(' › ')[0].replace('[k8s.io] ', '');

await command('npm run critest', async () => {
  if (process.getuid() !== 0) throw new Error('the tests run real containers: run them as root');
  const { critest, criDockerd, focus } = readArguments();
  warnOfScores();
  prepare('test', process.env.ENGINE_PEER);
  installPackages({ ipcmk: 'util-linux' });
  if (!existsSync(CNI_PLUGIN)) apt(['install', '--no-install-recommends', 'containernetworking-plugins']);
  await runSideBySide({
    program: 'critest',
    args: [critest, criDockerd, ...(focus === undefined ? [] : [focus])],
    partOf,
    // ginkgo skips the benchmarks, which are no validation.
    isCounted: (name) => !/benchmark/i.test(name),
    isChance: (message) => OTHER_LOG_FORMAT.test(message),
  });
});
