/**
 * Turns the output of a container into records in its log file. It encodes at once into large buffers, and has one
 * write under way at a time. The amount that waits for the disk is bounded: the container's reader is asked to pause
 * or, in non-blocking mode, lines are dropped and counted.
 */
import type { LogProgress, StreamName } from '../../ports/logs.js';
import { wallClockNs } from '../../sys/process/wall-clock.js';
import { giveBuffer, POOLED_BYTES, takeBuffer } from '../buffer-pool.js';
import { LineSplitter } from './line-splitter.js';
import type { LogFile } from './log-file.js';
import type { Piece, RecordEncoder } from '../drivers/record-format.js';

/** When more than this waits, `write` returns false until half of it is written. */
const PENDING_LIMIT_BYTES = 1 << 20;

/** The writer reports these to the rest of the log. */
export interface WriterEvents {
  /** The file has more records, or another file was begun. */
  advanced(): void;
  written(bytes: number): void;
  /** So many lines are lost: there was no room in non-blocking mode, or the disk refused them. */
  dropped(lines: number): void;
  failed(error: unknown, what: string): void;
}

interface StreamState {
  readonly splitter: LineSplitter;
  /** The time of the first piece of the current long line; all its pieces carry it. */
  longLineNs: bigint;
  /** Bytes that were given until now. */
  givenBytes: number;
}

/** So many bytes of each stream are in records. */
type TakenBytes = Record<StreamName, number>;

/** Encoded records; a batch with `isFileStart` begins a new file. */
interface Batch {
  readonly buffer: Buffer;
  length: number;
  lastTimeNs: bigint;
  isFileStart: boolean;
  /** With its records, and those before it. */
  readonly taken: TakenBytes;
}

export class LogWriter {
  readonly #streams: Readonly<Record<StreamName, StreamState>> = {
    stdout: { splitter: new LineSplitter(), longLineNs: 0n, givenBytes: 0 },
    stderr: { splitter: new LineSplitter(), longLineNs: 0n, givenBytes: 0 },
  };
  readonly #taken: TakenBytes = { stdout: 0, stderr: 0 };
  #progress: LogProgress;
  readonly #queue: Batch[] = [];
  #batch: Batch | undefined;
  /** Size that the current file will have when the queue is written. */
  #fileBytes: number;
  #pendingBytes = 0;
  #acceptedBytes = 0;
  #settledBytes = 0;
  #lastTimeNs: bigint;
  #writtenTimeNs: bigint | undefined;
  #isDraining = false;
  /** True when the disk refused the last write; this is reported once, and not for every write that follows. */
  #isFailing = false;
  #onDrained: (() => void)[] = [];
  #flushWaiters: { readonly target: number; readonly resolve: () => void }[] = [];
  /** Bytes that may wait in non-blocking mode; undefined in blocking mode. */
  readonly #maxBufferBytes: number | undefined;

  constructor(
    private readonly file: LogFile,
    private readonly encoder: RecordEncoder,
    private readonly events: WriterEvents,
    options: { readonly lastTimeNs: bigint | undefined; readonly maxBufferBytes: number | undefined },
  ) {
    this.#fileBytes = file.segment.size;
    this.#progress = { place: placeIn(file), taken: { ...this.#taken }, epoch: 0 };
    this.#lastTimeNs = options.lastTimeNs ?? 0n;
    this.#writtenTimeNs = options.lastTimeNs;
    this.#maxBufferBytes = options.maxBufferBytes;
  }

  /** Does `LogLedger.progress`. */
  get progress(): LogProgress {
    return this.#progress;
  }

  /** Does `ContainerLog.write`. */
  write(stream: StreamName, chunk: Buffer): boolean {
    const state = this.#streams[stream];
    const now = this.#now();
    let at = 0;
    while (at < chunk.length) {
      at = state.splitter.isAtLineStart
        ? this.#writeLines(stream, state, chunk, at, now)
        : this.#writeLine(stream, state, chunk, at, now);
      if (state.splitter.isEmpty) this.#took(stream, state.givenBytes + at);
    }
    state.givenBytes += chunk.length;
    this.#discardEmptyBatch();
    this.#drain();
    return this.#maxBufferBytes !== undefined || this.#pendingBytes <= PENDING_LIMIT_BYTES;
  }

  /** Does `ContainerLog.onceDrained`. */
  onceDrained(callback: () => void): void {
    if (this.#pendingBytes <= PENDING_LIMIT_BYTES / 2) callback();
    else this.#onDrained.push(callback);
  }

  /** Does `ContainerLog.written`. */
  written(): Promise<void> | undefined {
    const isOver = this.#maxBufferBytes !== undefined || this.#settledBytes >= this.#acceptedBytes;
    return isOver ? undefined : this.flushed();
  }

  /** Resolves when everything that was accepted until now is in the file, or was refused by it. */
  flushed(): Promise<void> {
    if (this.#settledBytes >= this.#acceptedBytes) return Promise.resolve();
    return new Promise((resolve) => this.#flushWaiters.push({ target: this.#acceptedBytes, resolve }));
  }

  /** Writes what is left of unfinished lines, and waits for the disk. */
  async end(): Promise<void> {
    this.#endLines();
    await this.flushed();
  }

  #endLines(): void {
    const now = this.#now();
    for (const stream of ['stdout', 'stderr'] as const) {
      const state = this.#streams[stream];
      state.splitter.end((source, from, to, piece) =>
        this.#record(stream, source, from, to, piece, piece && piece.ordinal > 1 ? state.longLineNs : now),
      );
      this.#took(stream, state.givenBytes);
    }
    this.#drain();
  }

  /** Writes as many complete lines as fit into one buffer and one file; otherwise one line, or the beginning of one. */
  #writeLines(stream: StreamName, state: StreamState, chunk: Buffer, from: number, now: bigint): number {
    const batch = this.#openBatch();
    // A record may begin in the file while the file is smaller than its limit.
    const limit = Math.min(
      batch.buffer.length - this.encoder.maxRecordBytes,
      batch.length + this.file.policy.maxBytes - this.#fileBytes,
    );
    if (this.#maxBufferBytes !== undefined && this.#pendingBytes + chunk.length * 2 > this.#maxBufferBytes)
      return this.#writeLine(stream, state, chunk, from, now);
    this.encoder.begin(stream, now);
    const consumed = this.encoder.encodeLines(chunk, from, batch.buffer, batch.length, limit);
    if (consumed === from) return this.#writeLine(stream, state, chunk, from, now);
    this.#added(batch, this.encoder.end, now);
    return consumed;
  }

  #writeLine(stream: StreamName, state: StreamState, chunk: Buffer, from: number, now: bigint): number {
    return state.splitter.take(chunk, from, (source, start, end, piece) => {
      if (piece?.ordinal === 1) state.longLineNs = now;
      this.#record(stream, source, start, end, piece, piece ? state.longLineNs : now);
    });
  }

  #record(
    stream: StreamName,
    source: Buffer,
    from: number,
    to: number,
    piece: Piece | undefined,
    timeNs: bigint,
  ): void {
    if (
      this.#maxBufferBytes !== undefined &&
      this.#pendingBytes > 0 &&
      this.#pendingBytes + to - from > this.#maxBufferBytes
    ) {
      this.events.dropped(1);
      return;
    }
    const batch = this.#openBatch();
    this.encoder.begin(stream, timeNs);
    this.#added(batch, this.encoder.encode(source, from, to, piece, batch.buffer, batch.length), timeNs);
  }

  /** Returns the buffer for the next record, with room for the largest one. */
  #openBatch(): Batch {
    const isFileFull = this.#fileBytes >= this.file.policy.maxBytes;
    let batch = this.#batch;
    if (batch && !isFileFull && batch.buffer.length - batch.length >= this.encoder.maxRecordBytes) return batch;
    if (batch) this.#queue.push(batch);
    const needed = this.encoder.maxRecordBytes;
    batch = {
      buffer: needed * 2 <= POOLED_BYTES ? takeBuffer() : Buffer.allocUnsafeSlow(needed * 2),
      length: 0,
      lastTimeNs: 0n,
      isFileStart: isFileFull,
      taken: { ...this.#taken },
    };
    if (isFileFull) this.#fileBytes = 0;
    this.#batch = batch;
    return batch;
  }

  /** The bytes up to there are in the records of the present batch, and of those before it. */
  #took(stream: StreamName, bytes: number): void {
    this.#taken[stream] = bytes;
    if (this.#batch) this.#batch.taken[stream] = bytes;
  }

  /** Gives the empty buffer back, so that a log which waits for the end of a line holds none. */
  #discardEmptyBatch(): void {
    const batch = this.#batch;
    if (!batch || batch.length > 0) return;
    this.#batch = undefined;
    if (batch.isFileStart) this.#fileBytes = this.file.policy.maxBytes;
    giveBuffer(batch.buffer);
  }

  #added(batch: Batch, end: number, timeNs: bigint): void {
    const bytes = end - batch.length;
    batch.length = end;
    batch.lastTimeNs = timeNs;
    this.#fileBytes += bytes;
    this.#pendingBytes += bytes;
    this.#acceptedBytes += bytes;
  }

  /**
   * Returns the time of what is printed now. It does not follow small steps back of the clock, so times in one log
   * never decrease.
   */
  #now(): bigint {
    const now = wallClockNs();
    const isSmallStepBack = now < this.#lastTimeNs && this.#lastTimeNs - now < 60_000_000_000n;
    if (!isSmallStepBack) this.#lastTimeNs = now;
    return this.#lastTimeNs;
  }

  #drain(): void {
    if (this.#isDraining || this.#pendingBytes === 0) return;
    this.#isDraining = true;
    void this.#writeQueue();
  }

  async #writeQueue(): Promise<void> {
    for (;;) {
      if (this.#queue.length === 0 && this.#batch && this.#batch.length > 0) {
        this.#queue.push(this.#batch);
        this.#batch = undefined;
      }
      const first = this.#queue[0];
      if (!first) break;
      if (first.isFileStart) {
        first.isFileStart = false;
        await this.file.rotate(this.#writtenTimeNs);
        this.#advanced(this.#progress.taken, true);
        continue;
      }
      const next = this.#queue.findIndex((batch, index) => index > 0 && batch.isFileStart);
      const batches = this.#queue.splice(0, next < 0 ? this.#queue.length : next);
      this.#writtenTimeNs = batches.at(-1)?.lastTimeNs;
      await this.#append(batches);
    }
    this.#isDraining = false;
  }

  async #append(batches: readonly Batch[]): Promise<void> {
    const records = batches.filter(({ length }) => length > 0).map(({ buffer, length }) => buffer.subarray(0, length));
    const bytes = records.reduce((sum, { length }) => sum + length, 0);
    let isLost = false;
    try {
      if (bytes > 0) await this.file.append(records);
      this.events.written(bytes);
      this.#isFailing = false;
    } catch (error) {
      // A full disk must not stop the container: lines that the disk refuses are lost, and reported.
      isLost = true;
      this.events.dropped(records.reduce((sum, record) => sum + this.encoder.count(record), 0));
      if (!this.#isFailing) this.events.failed(error, 'log lines are lost');
      this.#isFailing = true;
    }
    for (const { buffer } of batches) giveBuffer(buffer);
    this.#pendingBytes -= bytes;
    this.#settledBytes += bytes;
    this.#advanced(batches.at(-1)?.taken ?? this.#progress.taken, isLost);
    this.#settle();
  }

  /** @param isNew records from here on are counted from here. */
  #advanced(taken: Readonly<TakenBytes>, isNew: boolean): void {
    const { epoch } = this.#progress;
    this.#progress = { place: placeIn(this.file), taken, epoch: isNew ? epoch + 1 : epoch };
    this.events.advanced();
  }

  #settle(): void {
    const reached = this.#flushWaiters.filter(({ target }) => target <= this.#settledBytes);
    if (reached.length > 0) this.#flushWaiters = this.#flushWaiters.filter(({ target }) => target > this.#settledBytes);
    for (const { resolve } of reached) resolve();
    if (this.#pendingBytes > PENDING_LIMIT_BYTES / 2) return;
    const callbacks = this.#onDrained;
    this.#onDrained = [];
    for (const callback of callbacks) callback();
  }
}

function placeIn({ segment: { inode, size } }: LogFile): LogProgress['place'] {
  return { file: inode, offset: size };
}
