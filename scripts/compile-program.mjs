/**
 * node FLAGS scripts/compile-program.mjs SCRIPT THREAD [DIRECTORY]: keeps V8's code of the bundle's program, and of the
 * script of its worker threads, in files beside them. V8 takes it again only with the flags that it was made with, so
 * it is made as the daemon runs: with what src/main.ts resets.
 *
 * V8 compiles a function when it runs for the first time. So a thread runs some tasks, and with a directory for its
 * files a daemon starts, does some things (scripts/rehearsal.mjs) and ends; then the code of all that is kept.
 * scripts/bundle.mjs keeps it apart from the machine.
 */
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { MessageChannel, Worker } from 'node:worker_threads';
import { compileProgram } from '../dist/src/held-program.js';
import { LOAD_SCRIPT } from '../dist/src/workers/thread-script.js';
import { DebugSignal } from '../dist/src/sys/process/debug-signal.js';
import { ask, rehearseSteps } from './rehearsal.mjs';

const POLL_MS = 20;

setFlagsFromString('--max-semi-space-size=0');
setFlagsFromString('--initial-heap-size=0');
const [script, thread, dir] = process.argv.slice(2);
const { program, file, code } = await compileProgram(pathToFileURL(script));
writeFileSync(thread.replace(/cjs$/, 'code'), await threadCode(readFileSync(thread, 'latin1')));
// The daemon ends the process, whether it has come up or not.
process.on('exit', () => writeFileSync(file, code()));
if (dir !== undefined) await rehearse(dir);

/** Has a thread walk and remove a directory, as piscina would, and returns V8's code of what ran. */
function threadCode(text) {
  // The program has loaded it.
  const library = Object.keys(createRequire(import.meta.url).cache).find((file) => file.endsWith('/koffi.node'));
  const [{ port1: asking, port2: asked }, { port1, port2 }] = [new MessageChannel(), new MessageChannel()];
  const answer = `
const { asked } = require('node:worker_threads').workerData;
asked.on('message', () => asked.postMessage(script.createCachedData()));`;
  const worker = new Worker(LOAD_SCRIPT + answer, {
    eval: true,
    workerData: { text, code: undefined, library, asked },
    transferList: [asked],
  });
  // Piscina's protocol: a port for tasks, whose answers are counted in the shared numbers.
  const path = mkdtempSync(join(tmpdir(), 'engined-thread-'));
  const handler = { filename: 'entry.js', name: 'run' };
  const life = () => new Int32Array(new SharedArrayBuffer(4));
  const tasks = [
    { task: 'tree-size', input: { path }, life: life() },
    { task: 'remove-trees', input: { paths: [path] }, life: life() },
  ];
  return new Promise((resolve, reject) => {
    worker.on('error', reject);
    asking.on('message', (code) => void worker.terminate().then(() => resolve(code)));
    port1.on('message', ({ taskId, result, error }) => {
      if (error !== null || !result.ok) reject(error ?? new Error(`${tasks[taskId].task}: ${JSON.stringify(result)}`));
      else if (taskId === tasks.length - 1) asking.postMessage('now');
    });
    const begin = {
      port: port2,
      sharedBuffer: new Int32Array(new SharedArrayBuffer(8)),
      niceIncrement: 0,
      atomics: 'disabled',
    };
    worker.postMessage({ ...handler, ...begin }, [port2]);
    for (const [taskId, task] of tasks.entries()) port1.postMessage({ taskId, task, ...handler });
  });
}

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
  const socketPath = at('engine.sock');
  while ((await ask({ socketPath, path: '/_ping' })) === '') await sleep(POLL_MS);
  await rehearseSteps(socketPath);
  process.kill(process.pid, 'SIGTERM');
}
