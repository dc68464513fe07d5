#!/usr/bin/env -S -u NODE_OPTIONS node --inspect-port=240.0.0.1:1024 --max-semi-space-size=1 --initial-heap-size=64 --v8-pool-size=1
/**
 * The process. A process that sends SIGUSR1 must not get a debugger, because a debugger would give it root. So the
 * signal is taken before anything else is loaded; the address above, which no machine has, makes Node fail to open a
 * debugger until then; and the environment of the process that starts the daemon cannot ask for one either. The other
 * flags keep V8 small, but let the start end without a collection of its whole heap, for nearly all of it stays in use.
 * None of the flags can be set from inside a process that has started.
 */
import { setFlagsFromString } from 'node:v8';
import { DebugSignal } from './sys/process/debug-signal.js';

/** Does what the command line asks for, and returns the exit code. */
async function run([command, ...words]: readonly string[], debugSignal: DebugSignal): Promise<number> {
  if (command === 'dial-stdio') {
    // It is started for each connection of a client, so the program of the daemon is not even read.
    const { runDialStdio } = await import('./dial-stdio.js');
    const { stdin: input, stdout: output, stderr: complaints } = process;
    return process.exit(await runDialStdio(words, process.env, { input, output, outputFd: output.fd, complaints }));
  }
  const { runCommandLine } = await import('./command-line.js');
  return runCommandLine(process.argv.slice(2), debugSignal);
}

const debugSignal = DebugSignal.hold();
// The heap has its limits by now. As long as these flags stay, V8 refuses all code that was compiled without them: that
// of Node's own modules, which would be compiled anew in every thread, and ours.
setFlagsFromString('--max-semi-space-size=0');
setFlagsFromString('--initial-heap-size=0');
// A process that ends without an exit code has failed.
process.exitCode = 1;
void run(process.argv.slice(2), debugSignal).then((code) => (process.exitCode = code));
