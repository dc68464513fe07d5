#!/usr/bin/env node
/** The process: command line, pidfile, signals and exit codes. The daemon's parts are loaded only when it is to run. */
import { startUp } from './config/start-up.js';
import { PRODUCT_VERSION } from './version.js';

const outcome = startUp(process.argv.slice(2), process.env, PRODUCT_VERSION);
if (outcome.kind === 'exit') {
  process.stdout.write(outcome.stdout);
  process.stderr.write(outcome.stderr);
  process.exitCode = outcome.code;
} else {
  const { runDaemon } = await import('./daemon.js');
  process.exitCode = await runDaemon(outcome.loaded.config);
  // Sockets of clients that do not read their end would hold the process.
  process.exit();
}
