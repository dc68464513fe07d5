/** Tells what the machine does for others, which a bench cannot change. */
import { readFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';

/** The bench and its engines do next to nothing for so long. */
const LOOK_MS = 300;

/** Ticks of all processors since the start of the machine (proc(5)). */
function ticks(): { readonly busy: number; readonly all: number } {
  const fields = (/^cpu +(.*)$/m.exec(readFileSync('/proc/stat', 'latin1'))?.[1] ?? '').split(' ').map(Number);
  // Guests are counted in user time too.
  const counted = fields.slice(0, 8);
  const all = counted.reduce((sum, value) => sum + value, 0);
  // Idle time and time in which only disks were waited for.
  return { busy: all - (counted[3] ?? 0) - (counted[4] ?? 0), all };
}

/** Share of all processors that somebody uses while the bench waits, from 0 to 1; time stolen by a host counts. */
export async function othersShare(): Promise<number> {
  const before = ticks();
  await sleep(LOOK_MS);
  const after = ticks();
  return (after.busy - before.busy) / Math.max(1, after.all - before.all);
}
