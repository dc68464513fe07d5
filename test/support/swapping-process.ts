/**
 * node swapping-process.js PID STEPS: changes the root of this process into that of the process PID, so that every path
 * means what it means in the container, and takes the steps over and over. It writes a byte for every hundred rounds.
 */
import { mkdirSync, renameSync, rmSync, symlinkSync, writeSync } from 'node:fs';
import { load } from 'koffi';
import type { Step } from './swapping.js';

const PAUSE_MS = 1;
const clock = new Int32Array(new SharedArrayBuffer(4));

const [pid, text = '[]'] = process.argv.slice(2);
const steps = JSON.parse(text) as readonly Step[];
const chroot = load('libc.so.6').func('int chroot(const char *path)') as (path: string) => number;
if (chroot(`/proc/${pid}/root`) !== 0) throw new Error(`no root of process ${pid}`);
process.chdir('/');

function take(step: Step): void {
  try {
    if (step.do === 'move') renameSync(step.path, step.to);
    else if (step.do === 'link') symlinkSync(step.to, step.path);
    else if (step.do === 'make') mkdirSync(step.path);
    else rmSync(step.path, { recursive: true, force: true });
  } catch {
    // Somebody else has changed what is there: that is what the race is about.
  }
}

for (let round = 1; ; round++) {
  for (const step of steps) take(step);
  if (round % 100 === 0) writeSync(1, '.');
  Atomics.wait(clock, 0, 0, PAUSE_MS);
}
