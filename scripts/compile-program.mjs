/**
 * node FLAGS scripts/compile-program.mjs SCRIPT [DIRECTORY]: keeps V8's code of the bundle's program in a file beside
 * it. V8 takes it again only with the flags that it was made with, so it is made as the daemon runs: with what
 * src/main.ts resets.
 *
 * V8 compiles a function when it runs for the first time. So with a directory for its files, a daemon starts, answers
 * some requests and ends, and then the code of all that is kept. scripts/bundle.mjs keeps it apart from the machine.
 */
import { writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { compileProgram } from '../dist/src/held-program.js';
import { DebugSignal } from '../dist/src/sys/process/debug-signal.js';

/** Clients ask these first. */
const PATHS = ['/_ping', '/version', '/info', '/containers/json?all=1', '/images/json', '/networks', '/volumes'];
const POLL_MS = 20;

setFlagsFromString('--max-semi-space-size=0');
setFlagsFromString('--initial-heap-size=0');
const [script, dir] = process.argv.slice(2);
const { program, file, code } = await compileProgram(pathToFileURL(script));
// The daemon ends the process, whether it has come up or not.
process.on('exit', () => writeFileSync(file, code()));
if (dir !== undefined) await rehearse(dir);

async function rehearse(directory) {
  const at = (name) => join(directory, name);
  writeFileSync(at('daemon.json'), '{}');
  const places = [
    ['config-file', at('daemon.json')],
    ['host', `unix://${at('engine.sock')}`],
    ['data-root', at('data')],
    ['exec-root', at('exec')],
    ['pidfile', at('engine.pid')],
  ];
  const argv = places.map(([flag, value]) => `--${flag}=${value}`);
  void program.runCommandLine(argv, DebugSignal.hold());
  while (!(await answers(at('engine.sock'), PATHS[0]))) await sleep(POLL_MS);
  for (const path of PATHS) await answers(at('engine.sock'), path);
  process.kill(process.pid, 'SIGTERM');
}

/** True when there was a reply, whatever it says. */
function answers(socketPath, path) {
  return new Promise((resolve) => {
    request({ socketPath, path }, (reply) => reply.resume().on('close', () => resolve(true)))
      .on('error', () => resolve(false))
      .end();
  });
}
