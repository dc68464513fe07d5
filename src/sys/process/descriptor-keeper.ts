/**
 * Keeps descriptors open beyond the end of this process, so that what is in a pipe outlives its writers and us. A
 * service manager could do it as long as its unit is not stopped; this keeper needs none.
 *
 * The descriptors lie in the queue of a pair of sockets, as messages that nobody receives, and a small process has the
 * pair open: it costs about a megabyte, and a message some hundred bytes. It waits in open(2) on a FIFO that nobody
 * writes to. Whoever opens that FIFO for writing ends it, so no process number is needed, which might be another's.
 */
import { closeSync, constants, mkdirSync, openSync, readdirSync, rmSync, statSync } from 'node:fs';
import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { closeFd } from '../files/fd.js';
import { makeFifo } from '../files/inode.js';
import { growBuffer } from '../net/buffer-size.js';
import { receiveDescriptors, sendDescriptors, walkMessages } from '../net/descriptor-messages.js';
import { socketPair } from '../net/socket-pair.js';
import { startInBackground } from './background.js';
import { forgetKeeper, noteKeeper, readEarlierKeepers } from './earlier-keepers.js';

/** Reads the file that it is given; every system has it. */
const PROGRAM = 'cat';
/** The kernel counts about a thousand bytes for a message. */
const QUEUE_BYTES = 64 << 20;
/** Messages are a name; descriptors that are not needed any more stay in the queue until there are so many of them. */
const NAME_BYTES = 256;
const STALE = 64;

export class DescriptorKeeper {
  readonly #dir: string;
  /** Descriptors go in at one end and stay in the queue of the other. */
  #pair: readonly [into: number, queue: number] | undefined;
  /** Resolves when the process runs. Nothing is kept before. */
  #started: Promise<void> | undefined;
  /** Name of the FIFO that our process waits for. */
  #own: string | undefined;
  /** The entry that each name shall have, also as long as the process is being started. */
  readonly #wanted = new Map<string, string>();
  /** The entry of each name that is in the queue and needed. */
  readonly #held = new Map<string, string>();
  #queued = 0;

  /** @param dir a directory for the keepers alone, whose path names the daemon. It is made when it is needed. */
  constructor(dir: string) {
    this.#dir = dir;
  }

  /**
   * Keeps descriptors under a name of up to 255 bytes, until `release`. They still belong to the caller.
   * @throws EngineError when the process cannot be started, or the system has no room.
   */
  async hold(name: string, fds: readonly number[]): Promise<void> {
    // Numbered, because a name comes again.
    const entry = `${name}\0${(lastEntry += 1)}`;
    this.#wanted.set(name, entry);
    await (this.#started ??= this.#start().catch((error: unknown) => {
      this.#started = undefined;
      throw error;
    }));
    // It may have been released before the process ran.
    if (this.#pair === undefined || this.#wanted.get(name) !== entry) return;
    sendDescriptors(this.#pair[0], Buffer.from(entry), fds);
    this.#queued++;
    this.#held.set(name, entry);
  }

  release(name: string): void {
    this.#wanted.delete(name);
    const entry = this.#held.get(name);
    if (entry === undefined) return;
    this.#held.delete(name);
    this.#note(entry);
    if (this.#queued - this.#held.size > Math.max(STALE, this.#held.size)) this.#sweep();
  }

  /**
   * Returns copies of what the keepers of earlier processes hold, by name. They belong to the caller; the keepers still
   * have theirs. A keeper that this process may not look into (before Linux 5.6, or without the right to trace it)
   * counts as one that holds nothing.
   */
  earlier(): Promise<Map<string, readonly number[]>> {
    return readEarlierKeepers(fifosIn(this.#dir, this.#own));
  }

  /**
   * Ends the keepers of earlier processes. What they had and nobody else has is gone then.
   */
  endEarlier(): void {
    for (const fifo of fifosIn(this.#dir, this.#own)) endKeeper(fifo);
  }

  /** Ends this process's keeper if it holds nothing; else it stays for the next daemon. */
  close(): void {
    if (this.#pair !== undefined) for (const fd of this.#pair) closeFd(fd);
    this.#pair = undefined;
    if (this.#held.size === 0 && this.#own !== undefined) endKeeper(join(this.#dir, this.#own));
  }

  async #start(): Promise<void> {
    mkdirSync(this.#dir, { recursive: true, mode: 0o700 });
    this.#own = randomBytes(8).toString('hex');
    const fifo = join(this.#dir, this.#own);
    makeFifo(fifo);
    const pair = socketPair('messages');
    try {
      growBuffer(pair[0], 'send', QUEUE_BYTES);
      const { pid } = await startInBackground(PROGRAM, [fifo], pair);
      noteKeeper(fifo, pid);
    } catch (error) {
      for (const fd of pair) closeFd(fd);
      endKeeper(fifo);
      throw error;
    }
    this.#pair = pair;
  }

  /** Tells whoever reads the queue after us that an entry was released, by a message without descriptors. */
  #note(entry: string): void {
    if (this.#pair === undefined) return;
    try {
      sendDescriptors(this.#pair[0], Buffer.from(entry), []);
      this.#queued++;
    } catch {
      // Without room for it, the entry seems to be held until the queue is swept.
    }
  }

  /** Takes what is stale out of the queue. Whatever stays is put in again before it is taken out. */
  #sweep(): void {
    if (this.#pair === undefined) return;
    const [into, queue] = this.#pair;
    // A successor that ended while it read may have left it otherwise.
    walkMessages(queue, false);
    const held = new Set(this.#held.values());
    const all = this.#queued;
    for (let i = 0; i < all; i++) {
      const first = receiveDescriptors(queue, NAME_BYTES, { peeks: true });
      if (first === undefined) return;
      const isHeld = first.fds.length > 0 && held.has(first.bytes.toString());
      if (isHeld) sendDescriptors(into, first.bytes, first.fds);
      const taken = receiveDescriptors(queue, NAME_BYTES);
      for (const fd of [...first.fds, ...(taken?.fds ?? [])]) closeFd(fd);
      if (!isHeld) this.#queued--;
    }
  }
}

let lastEntry = 0;

/**
 * A process that waits for a writer reads the end of the file when this one has gone. One that has just been started
 * may open the FIFO at any moment: it finds this writer, which stays until the name is gone, or no FIFO.
 */
function endKeeper(fifo: string): void {
  let writer: number | undefined;
  try {
    // For reading, too: else it is refused where nobody waits yet.
    writer = openSync(fifo, constants.O_RDWR | constants.O_NONBLOCK);
  } catch {
    // It is gone already.
  }
  forgetKeeper(fifo);
  rmSync(fifo, { force: true });
  if (writer !== undefined) closeSync(writer);
}

/** Returns the paths of the FIFOs of keepers other than `own`, the oldest first. */
function fifosIn(dir: string, own: string | undefined): string[] {
  try {
    return readdirSync(dir)
      .filter((name) => /^[0-9a-f]+$/.test(name) && name !== own)
      .map((name) => join(dir, name))
      .map((path) => ({ path, madeMs: statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0 }))
      .sort((a, b) => a.madeMs - b.madeMs)
      .map(({ path }) => path);
  } catch {
    return []; // Nothing was ever kept.
  }
}
