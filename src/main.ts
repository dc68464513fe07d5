#!/usr/bin/env -S node --max-semi-space-size=1 --v8-pool-size=1 --max-lazy
/**
 * The process: what the command line asks for, and the exit code. The daemon's parts are loaded only when it is to run.
 * The flags above keep V8 small; they cannot be set from inside a process that has started.
 */
import { startUp } from './config/start-up.js';
import { PRODUCT_VERSION } from './version.js';

const outcome = startUp(process.argv.slice(2), process.env, PRODUCT_VERSION);
if (outcome.kind === 'exit') {
  process.stdout.write(outcome.stdout);
  process.stderr.write(outcome.stderr);
  process.exitCode = outcome.code;
} else {
  const { runDaemon } = await import('./daemon.js');
  process.exitCode = await runDaemon(outcome.loaded);
  // Sockets of clients that do not read their end would hold the process.
  process.exit();
}
