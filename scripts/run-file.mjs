/**
 * node scripts/run-file.mjs SUMMARY CONCURRENCY FILE...: runs compiled test files in this sandbox, writes the report
 * to its output and the counts as JSON to the file SUMMARY.
 */
import { writeFileSync } from 'node:fs';
import { Readable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { run } from 'node:test';
import { spec as SpecReporter } from 'node:test/reporters';

const COUNTER = /^(tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) ([\d.]+)$/;

const [summary, concurrency, ...files] = process.argv.slice(2);
const counts = {};
const failures = [];

/**
 * Passes on all events except the counts of the whole run: the program that puts many runs together reports their sums.
 */
async function* events() {
  for await (const event of run({ files, concurrency: Number(concurrency), forceExit: true })) {
    const isTotal = event.type === 'test:diagnostic' && event.data.nesting === 0 && event.data.file === undefined;
    const counter = isTotal ? COUNTER.exec(event.data.message) : null;
    if (event.type === 'test:fail') failures.push({ name: event.data.name, file: event.data.file ?? '' });
    if (counter === null) yield event;
    else counts[counter[1]] = Number(counter[2]);
  }
}

const report = Readable.from(events()).compose(new SpecReporter());
report.pipe(process.stdout);
await finished(report);
writeFileSync(summary, JSON.stringify({ counts, failures }));
process.exitCode = failures.length === 0 ? 0 : 1;
