#!/usr/bin/env -S node --max-semi-space-size=1 --v8-pool-size=1 --max-lazy
/**
 * The process: what the command line asks for, and the exit code. The daemon's parts are loaded only when it is to run.
 * The flags above keep V8 small; they cannot be set from inside a process that has started.
 */
import { startUp } from './config/start-up.js';
import { PRODUCT_VERSION } from './version.js';

const [command, ...flags] = process.argv.slice(2);
const isFsck = command === 'fsck';
const repair = isFsck && flags.includes('--repair');
const outcome = startUp(isFsck ? flags.filter((flag) => flag !== '--repair') : process.argv.slice(2), process.env, PRODUCT_VERSION);
if (outcome.kind === 'exit') {
  process.stdout.write(outcome.stdout);
  process.stderr.write(outcome.stderr);
  process.exitCode = outcome.code;
} else if (isFsck) {
  const { runFsck } = await import('./fsck.js');
  const line = (stream: NodeJS.WritableStream) => (text: string) => void stream.write(`${text}\n`);
  process.exitCode = await runFsck(outcome.loaded, { repair }, line(process.stdout), line(process.stderr));
} else {
  const { runDaemon } = await import('./daemon.js');
  process.exitCode = await runDaemon(outcome.loaded);
  // Sockets of clients that do not read their end would hold the process.
  process.exit();
}
