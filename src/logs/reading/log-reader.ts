/** Reads a log from its files and, if asked to follow, goes on as it grows. */
import type { LogReadOptions } from '../../ports/logs.js';
import { givePiece, keepPiece } from '../../sys/files/piece-pool.js';
import { giveBuffer, takeBuffer } from '../buffer-pool.js';
import { findStart, type LogSnapshot } from './log-start.js';
import type { LogObserver } from '../observer.js';
import { MAX_RECORD_BYTES, type RecordDecoder, type RecordFormat } from '../drivers/record-format.js';
import type { Segment } from './segment.js';

/** The result of one step of reading. */
export interface Block {
  readonly output: Buffer;
  /** The offset of the next step; it is the same as before when there is no whole record. */
  readonly next: number;
  readonly isFinished: boolean;
}

/** A reader that waits for a log to grow. */
export interface Follower {
  /** Wakes the reader; set while it waits. */
  wake: (() => void) | undefined;
}

/** A log that is being written offers this to its readers. */
export interface LiveLog {
  /** Adds a follower, which counts until it is removed. */
  addFollower(follower: Follower): void;
  removeFollower(follower: Follower): void;
  /** Returns the block at this place for these options; the first reader that asks produces it for the others. */
  share(segment: Segment, offset: number, options: string, produce: () => Promise<Block>): Promise<Block>;
}

/** Its pieces may be given back to the pool of pieces. */
export class LogReader implements AsyncIterableIterator<Buffer> {
  readonly #run: AsyncGenerator<Buffer, undefined>;
  readonly #decoder: RecordDecoder;
  readonly #optionsKey: string;
  readonly #follower: Follower = { wake: undefined };
  #isStopped = false;
  #damagedBytes = 0;

  /**
   * @param open takes a snapshot of the log when the first piece is asked for.
   * @param live undefined for a log that nobody writes: then `follow` has no effect.
   */
  constructor(
    private readonly open: () => Promise<LogSnapshot>,
    private readonly format: RecordFormat,
    private readonly options: LogReadOptions,
    private readonly live: LiveLog | undefined,
    private readonly observer: Pick<LogObserver, 'damaged' | 'readFailed'>,
  ) {
    this.#decoder = format.createDecoder(options, (bytes) => (this.#damagedBytes += bytes));
    this.#optionsKey = [
      options.stdout,
      options.stderr,
      options.timestamps,
      options.details,
      options.multiplexed,
      options.sinceNs,
      options.untilNs,
    ].join();
    this.#run = this.#observed();
  }

  [Symbol.asyncIterator](): this {
    return this;
  }

  next(): Promise<IteratorResult<Buffer, undefined>> {
    return this.#run.next();
  }

  /** Frees everything and settles a pending `next`. */
  async return(): Promise<IteratorResult<Buffer, undefined>> {
    this.#isStopped = true;
    this.#follower.wake?.();
    return this.#run.return(undefined);
  }

  async *#observed(): AsyncGenerator<Buffer, undefined> {
    try {
      yield* this.#read();
    } catch (error) {
      this.observer.readFailed(error);
      throw error;
    }
  }

  async *#read(): AsyncGenerator<Buffer, undefined> {
    const snapshot = await this.open();
    let held = snapshot.segment;
    try {
      const start = await findStart(snapshot, this.format, this.options);
      let { offset } = start;
      for (const source of snapshot.rotated.slice(start.index)) {
        const segment = await source.segment();
        yield* this.#blocks(segment, offset, segment.size);
        await source.close();
        offset = 0;
      }
      if (!held || this.#isDone) return;
      yield* this.#blocks(held, offset, snapshot.end);
      if (!this.live || !this.options.follow) return;
      const newest = held;
      held = undefined;
      yield* this.#follow(this.live, newest, snapshot.end);
    } finally {
      held?.release();
      await Promise.all(snapshot.rotated.map((source) => source.close()));
    }
  }

  get #isDone(): boolean {
    return this.#isStopped || this.#decoder.isFinished;
  }

  async *#blocks(segment: Segment, from: number, to: number): AsyncGenerator<Buffer, undefined> {
    const blockAt = (offset: number): Promise<Block> | undefined =>
      offset < to && !this.#isDone ? this.#block(segment, offset, to) : undefined;
    let coming = blockAt(from);
    for (let offset = from; coming !== undefined;) {
      const block = await coming;
      // An unfinished record at the end of the file is not reported here.
      if (block.next === offset) return;
      offset = block.next;
      // The next block is made while this one is sent.
      coming = block.isFinished ? undefined : blockAt(offset);
      coming?.catch(() => undefined);
      if (block.output.length > 0) yield block.output;
      else givePiece(block.output);
    }
  }

  /** Follows a log that grows. It takes over the caller's hold of the segment. */
  async *#follow(live: LiveLog, from: Segment, start: number): AsyncGenerator<Buffer, undefined> {
    let segment = from;
    let offset = start;
    live.addFollower(this.#follower);
    try {
      while (!this.#isDone) {
        if (offset < segment.size) {
          const block = await this.#block(segment, offset, segment.size);
          offset = block.next === offset ? segment.size : block.next;
          if (block.output.length > 0) yield block.output;
          if (block.isFinished) return;
        } else if (segment.next) {
          const next = segment.next.acquire();
          segment.release();
          segment = next;
          offset = 0;
        } else if (segment.isSealed) return;
        else await new Promise<void>((resolve) => (this.#follower.wake = resolve));
      }
    } finally {
      live.removeFollower(this.#follower);
      segment.release();
    }
  }

  #block(segment: Segment, from: number, to: number): Promise<Block> {
    if (!this.live || segment.isSealed) return this.#produce(segment, from, to);
    return this.live.share(segment, from, this.#optionsKey, async () => {
      const block = await this.#produce(segment, from, to);
      keepPiece(block.output);
      return block;
    });
  }

  async #produce(segment: Segment, from: number, to: number): Promise<Block> {
    let buffer = takeBuffer();
    segment.acquire();
    try {
      for (let offset = from; ;) {
        const length = await segment.read(buffer, Math.min(buffer.length, to - offset), offset);
        const output = this.#decoder.decode(buffer, length);
        if (this.#decoder.consumed > 0)
          return { output, next: offset + this.#decoder.consumed, isFinished: this.#decoder.isFinished };
        if (length < buffer.length) return { output, next: offset, isFinished: false };
        // This is a record that is larger than the buffer, or no record at all.
        if (buffer.length >= MAX_RECORD_BYTES) offset += this.#decoder.skip(buffer);
        else buffer = Buffer.allocUnsafeSlow(MAX_RECORD_BYTES);
      }
    } finally {
      segment.release();
      giveBuffer(buffer);
      if (this.#damagedBytes > 0) this.observer.damaged(this.#damagedBytes);
      this.#damagedBytes = 0;
    }
  }
}
