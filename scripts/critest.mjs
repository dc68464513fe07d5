/**
 * npm run critest -- [--critest PROGRAM] [--cri-dockerd PROGRAM] [--focus EXPRESSION] [--peer VERSION]:
 * runs the validation tests of the Container Runtime Interface through cri-dockerd against dockerd and against this
 * engine, each in a sandbox of its own, and prints what came of them side by side. The two programs are statically
 * linked ones of the machine, found on PATH by default; nothing fetches them. Ends with status 1 when a test fails with
 * this engine that passes with dockerd.
 */
import { command } from './prepare.mjs';
import { prepareNode, readPrograms } from './node-programs.mjs';
import { runSideBySide } from './side-by-side.mjs';

/**
 * cri-dockerd links to logs as the engine writes them, and critest wants those of another format. A test that finds a
 * log still empty may pass, so which of these fail is chance.
 */
const OTHER_LOG_FORMAT = /^failed to parse timeStamp/;

/** A part of critest is the first word group of a test's name. */
const partOf = (name) => name.split(' › ')[0].replace('[k8s.io] ', '');

await command('npm run critest', async () => {
  const args = readPrograms('critest', 'cri-dockerd');
  prepareNode();
  await runSideBySide({
    program: 'critest',
    args,
    partOf,
    // ginkgo skips the benchmarks, which are no validation.
    isCounted: (name) => !/benchmark/i.test(name),
    isChance: (message) => OTHER_LOG_FORMAT.test(message),
  });
});
