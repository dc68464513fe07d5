/**
 * npm run empty-input: the forms of test/streams/empty-input.test.ts, many times, several at a time and so under load.
 * Prints
 * how often each was run, how long the slowest took, and what failed. To be run in a network namespace of its own.
 */
import { execFileSync } from 'node:child_process';
import { parseArgs } from 'node:util';
import { Cleanup } from './cleanup.js';
import { inParallel } from './connect-and-reset.js';
import { openDoors, startWeb } from './doors.js';
import { cliForms, rawForms, type Form } from './ended-input.js';

const { values } = parseArgs({
  options: { runs: { type: 'string', default: '1000' }, 'at-a-time': { type: 'string', default: '8' } },
});
const [runs, atATime] = [Number(values.runs), Number(values['at-a-time'])];

interface Tally {
  runs: number;
  slowestMs: number;
  readonly failures: string[];
}

/** Runs the forms by turns; gives how many runs failed. */
async function repeat(title: string, forms: readonly Form[]): Promise<number> {
  const tallies = new Map<string, Tally>(forms.map(({ name }) => [name, { runs: 0, slowestMs: 0, failures: [] }]));
  const startedMs = performance.now();
  await inParallel(runs, atATime, async (index) => {
    const form = forms[index % forms.length];
    const tally = tallies.get(form?.name ?? '');
    if (form === undefined || tally === undefined) return;
    const beganMs = performance.now();
    await form.run().catch((error: unknown) => tally.failures.push(String(error)));
    tally.runs++;
    tally.slowestMs = Math.max(tally.slowestMs, performance.now() - beganMs);
  });
  const seconds = Math.round((performance.now() - startedMs) / 1000);
  const failed = [...tallies.values()].reduce((sum, { failures }) => sum + failures.length, 0);
  console.log(
    `${title}: ${runs} runs of ${forms.length} forms, ${atATime} at a time, in ${seconds} s; ${failed} failed`,
  );
  for (const [name, tally] of tallies) {
    console.log(
      `  ${name}: ${tally.runs} runs, the slowest ${Math.round(tally.slowestMs)} ms, ${tally.failures.length} failed`,
    );
    for (const failure of tally.failures.slice(0, 3)) console.log(`    ${failure}`);
  }
  return failed;
}

const cleanup = new Cleanup();
execFileSync('ip', ['link', 'set', 'lo', 'up']);
try {
  const doors = await openDoors(cleanup);
  const webs = new Map<string, string>();
  for (const door of doors) webs.set(door.name, await startWeb(door, cleanup));
  // The CLI over plain TCP is left out: it does what it does over a unix socket.
  const cli = doors.filter(({ name }) => name !== 'tcp').flatMap((door) => cliForms(door, webs.get(door.name) ?? ''));
  const raw = doors.flatMap((door) => rawForms(door, webs.get(door.name) ?? ''));
  const failed = (await repeat('docker CLI', cli)) + (await repeat('bare connections', raw));
  if (failed > 0) process.exitCode = 1;
} finally {
  await cleanup.run();
}
