/**
 * Reads what keepers of descriptors hold that an earlier process has started: the queues of their sockets are walked
 * through without anything being taken, so that whoever is killed meanwhile loses nothing.
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { closeFd } from '../files/fd.js';
import { receiveDescriptors, walkMessages } from '../net/descriptor-messages.js';
import { copyFdOf, openPidfd } from './pidfd.js';

/** The descriptor of a keeper whose queue has the messages: the second of those that it is started with. */
const QUEUE_FD = 4;
/** Longer than any entry, since what is cut off would be read as a message of its own. */
const ENTRY_BYTES = 512;

/**
 * Notes which process waits for a FIFO, beside it, for `readEarlierKeepers`. Its command line, which everybody sees and
 * can have as well, would not prove that it is ours; nobody else writes into the directory. A few bytes, at once.
 */
export function noteKeeper(fifo: string, pid: number): void {
  writeFileSync(noteOf(fifo), describe(pid), { mode: 0o600 });
}

/** Removes the note. */
export function forgetKeeper(fifo: string): void {
  rmSync(noteOf(fifo), { force: true });
}

function noteOf(fifo: string): string {
  return `${fifo}.process`;
}

/** Returns what only this process has: its number and the time of its start, in ticks since the machine booted. */
function describe(pid: number): string {
  const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
  // proc(5): the name of the program is in brackets, and the start is the 20th field behind it.
  return `${pid} ${stat.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? ''}`;
}

interface Entry {
  readonly number: number;
  readonly fds: readonly number[];
}

/**
 * Returns copies of the descriptors that keepers hold, by name; they belong to the caller. A keeper that has ended, or
 * may not be looked into, holds nothing.
 * @param fifos paths of the FIFOs that the keepers wait for; what a later one holds under a name is the newer.
 */
export async function readEarlierKeepers(fifos: readonly string[]): Promise<Map<string, readonly number[]>> {
  const held = new Map<string, readonly number[]>();
  for (const fifo of fifos) {
    for (const [name, { fds }] of await entriesOf(fifo)) {
      close(held.get(name) ?? []);
      held.set(name, fds);
    }
  }
  return held;
}

/** Returns what one keeper holds: the newest entry of each name that is not followed by the note of its release. */
async function entriesOf(fifo: string): Promise<Map<string, Entry>> {
  const entries = new Map<string, Entry>();
  const queue = await openQueue(fifo);
  if (queue === undefined) return entries;
  try {
    walkMessages(queue, true);
    for (;;) {
      const message = receiveDescriptors(queue, ENTRY_BYTES, { peeks: true });
      if (message === undefined || message.bytes.length === 0) break;
      add(entries, message.bytes.toString(), message.fds);
    }
  } finally {
    walkMessages(queue, false);
    closeFd(queue);
  }
  for (const [name, { fds }] of entries) if (fds.length === 0) entries.delete(name);
  return entries;
}

/** Undefined when the keeper has ended, or the kernel does not give the descriptor away. */
async function openQueue(fifo: string): Promise<number | undefined> {
  let pidfd: number | undefined;
  try {
    const noted = await readFile(noteOf(fifo), 'utf8');
    const pid = Number(noted.split(' ')[0]);
    pidfd = openPidfd(pid);
    // The descriptor is of the process that is noted, unless its number went to another since.
    return describe(pid) === noted ? copyFdOf(pidfd, QUEUE_FD) : undefined;
  } catch {
    return undefined;
  } finally {
    if (pidfd !== undefined) closeFd(pidfd);
  }
}

/** An entry comes again when a queue was being swept, and its number without descriptors says that it was released. */
function add(entries: Map<string, Entry>, entry: string, fds: readonly number[]): void {
  const end = entry.lastIndexOf('\0');
  const name = entry.slice(0, end);
  const number = Number(entry.slice(end + 1));
  const known = entries.get(name);
  const isOld = known !== undefined && (known.number > number || (known.number === number && known.fds.length === 0));
  close(isOld ? fds : (known?.fds ?? []));
  if (!isOld) entries.set(name, { number, fds });
}

function close(fds: readonly number[]): void {
  for (const fd of fds) closeFd(fd);
}
