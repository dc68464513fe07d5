/**
 * A reporter of node:test: prints what its `spec` does, and writes the counts and failures of the run as JSON to the
 * file that TEST_SUMMARY names, for the program that puts many runs together. A run that ends before its last test
 * writes none.
 */
import { writeFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import { spec as SpecReporter } from 'node:test/reporters';
import { setFlagsFromString } from 'node:v8';

const COUNTER = /^(tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) ([\d.]+)$/;

const counts = {};
const failures = [];
/** All tests of the run have ended: what follows are the counts. */
let isOver = false;
/** A test has ended. */
let hasEnded = false;

/**
 * A process of tests is over before it has won back what V8 takes to optimize code early: a tenth of its time. It is
 * said so late because V8 takes none of the compiled code of Node's own modules after that. Later versions of Node do
 * not know the option.
 */
function optimizeLater() {
  if (process.version.startsWith('v20.')) setFlagsFromString('--interrupt-budget=1000000');
}

/** Passes on all events except the counts of the whole run: their sums are reported. */
async function* withoutCounts(source) {
  for await (const event of source) {
    const { nesting, message, name, file } = event.data;
    if (event.type === 'test:pass' && !hasEnded) {
      hasEnded = true;
      optimizeLater();
    }
    // Where several files are run, each has a plan of its own, and counts only in some versions of Node.
    if (event.type === 'test:plan' && nesting === 0) isOver = true;
    const isCount = isOver && event.type === 'test:diagnostic' && nesting === 0 && COUNTER.exec(message);
    // A suite fails with its tests, which are told themselves.
    const isSuiteOfFailures = event.data.details?.error?.failureType === 'subtestsFailed';
    if (event.type === 'test:fail' && !isSuiteOfFailures) failures.push({ name, file: file ?? '' });
    if (isCount) counts[isCount[1]] = Number(isCount[2]);
    else yield event;
  }
}

// With --test-force-exit the process ends before its reporters do.
process.on('exit', () => {
  if (isOver) writeFileSync(process.env.TEST_SUMMARY, JSON.stringify({ counts, failures }));
});

export default async function* testReport(source) {
  yield* Readable.from(withoutCounts(source)).compose(new SpecReporter());
}
