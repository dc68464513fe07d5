/**
 * Input that is at its end before, at or right after the start of what reads it, as with `</dev/null`: every job of a
 * build server does that. scripts/empty-input.mjs repeats the same forms as often as one likes.
 */
import { after, before, test } from 'node:test';
import { Cleanup } from '../support/cleanup.js';
import { inParallel } from '../support/connect-and-reset.js';
import { openDoors, startWeb, type Door } from '../support/doors.js';
import { cliForms, rawForms, type Form } from '../support/ended-input.js';

const cleanup = new Cleanup();
/** Some at a time, so that starts and ends of input meet in every order. */
const AT_A_TIME = 4;
let doors: readonly Door[] = [];
/** A container that runs, behind each door. */
const webs = new Map<Door, string>();

before(async () => {
  doors = await openDoors(cleanup);
  for (const door of doors) webs.set(door, await startWeb(door, cleanup));
});
after(() => cleanup.run());

async function runAll(forms: readonly Form[]): Promise<void> {
  await inParallel(forms.length, AT_A_TIME, async (index) => {
    const form = forms[index];
    await form?.run().catch((cause: unknown) => {
      throw new Error(`${form.name}: ${cause instanceof Error ? cause.message : String(cause)}`, { cause });
    });
  });
}

test('commands of the CLI end when their input does', async () => {
  const forms = doors.filter(({ name }) => name !== 'tcp').flatMap((door) => cliForms(door, webs.get(door) ?? ''));
  // TLS has an end of its own for each direction; how much came before it is told behind the socket.
  await runAll(forms.filter(({ name }) => name.startsWith('unix') || name.endsWith('</dev/null')));
});

test('attach and exec on bare connections see the end of input whenever it comes', async () => {
  const forms = doors.flatMap((door) => rawForms(door, webs.get(door) ?? ''));
  // Without an upgrade, and on a terminal, it is the same behind each door.
  await runAll(forms.filter(({ name }) => name.startsWith('unix') || !/plain|with a terminal/.test(name)));
});
