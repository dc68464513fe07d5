#!/usr/bin/env -S -u NODE_OPTIONS node --inspect-port=240.0.0.1:1024 --max-semi-space-size=1 --v8-pool-size=1
/**
 * The process. A process that sends SIGUSR1 must not get a debugger, because a debugger would give it root. So the
 * signal is taken before anything else is loaded; the address above, which no machine has, makes Node fail to open a
 * debugger until then; and the environment of the process that starts the daemon cannot ask for one either. The other
 * flags keep V8 small. None of the flags can be set from inside a process that has started.
 */
import { setFlagsFromString } from 'node:v8';
import { DebugSignal } from './sys/process/debug-signal.js';

const debugSignal = DebugSignal.hold();
const [command, ...words] = process.argv.slice(2);
if (command === 'dial-stdio') {
  // It is started for each connection of a client, so the program of the daemon is not even read.
  const { runDialStdio } = await import('./dial-stdio.js');
  const { stdin: input, stdout: output, stderr: complaints } = process;
  process.exit(await runDialStdio(words, process.env, { input, output, outputFd: output.fd, complaints }));
}
// The heap has its limit by now. As long as the flag stays, V8 refuses all code that was compiled without it: that of
// Node's own modules, which would be compiled anew in every thread, and ours.
setFlagsFromString('--max-semi-space-size=0');
const { runCommandLine } = await import('./command-line.js');
process.exitCode = await runCommandLine(process.argv.slice(2), debugSignal);
