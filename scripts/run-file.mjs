/**
 * node scripts/run-file.mjs CONCURRENCY FILE...: runs compiled test files in this sandbox, each in a process of its
 * own, and reports as test-report.mjs says.
 */
import { Readable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { run } from 'node:test';
import testReport from './test-report.mjs';

const [concurrency, ...files] = process.argv.slice(2);
let hasFailed = false;
const events = run({ files, concurrency: Number(concurrency), forceExit: true });
events.on('test:fail', () => (hasFailed = true));
const report = Readable.from(testReport(events));
report.pipe(process.stdout);
await finished(report);
process.exitCode = hasFailed ? 1 : 0;
