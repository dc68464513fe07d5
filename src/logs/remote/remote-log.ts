/**
 * The log of one running container that goes to a remote place and, unless that is disabled, to a local cache from
 * which it can be read. The queue for the remote side is bounded: when it is full, the container has to wait or, where
 * the mode or the driver says so, lines are dropped and counted.
 */
import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { notImplemented } from '../../errors/engine-error.js';
import type { ContainerLog, LogReadOptions, StreamName } from '../../ports/logs.js';
import { wallClockNs } from '../../sys/process/wall-clock.js';
import { DropReport } from '../writing/drop-report.js';
import { LineSplitter } from '../writing/line-splitter.js';
import type { LogObserver } from '../observer.js';
import type { Piece } from '../drivers/record-format.js';
import type { RemoteReader } from './remote-driver.js';
import type { RemoteRecord, RemoteSink } from './remote-sink.js';

/** When a container has ended, the remote side has this long to take the rest. */
const CLOSE_MS = 5_000;
/**
 * A socket that takes data at once reports that in the same turn of the event loop. So sending pauses after this time,
 * to let others run.
 */
const SLICE_MS = 1;
/** A record costs about so much memory besides its line. */
const RECORD_BYTES = 200;

export interface RemoteLogOptions {
  readonly sink: RemoteSink;
  /** Everything is written to this log, too, and read from it. */
  readonly cache: ContainerLog | undefined;
  /** Reads from the remote side where there is no cache; undefined where that cannot be read. */
  readonly read?: RemoteReader | undefined;
  /** Bytes that may wait in non-blocking mode; undefined in blocking mode. */
  readonly maxBufferBytes: number | undefined;
  readonly observer: LogObserver;
}

interface StreamState {
  readonly splitter: LineSplitter;
  longLineNs: bigint;
}

export class RemoteLog implements ContainerLog {
  readonly path = '';
  readonly #sink: RemoteSink;
  readonly #cache: ContainerLog | undefined;
  readonly #read: RemoteLogOptions['read'];
  readonly #observer: LogObserver;
  readonly #drops: DropReport;
  /** Bytes that may wait in non-blocking mode. */
  readonly #maxBufferBytes: number | undefined;
  readonly #streams: Readonly<Record<StreamName, StreamState>> = {
    stdout: { splitter: new LineSplitter(), longLineNs: 0n },
    stderr: { splitter: new LineSplitter(), longLineNs: 0n },
  };
  #queue: RemoteRecord[] = [];
  /** Bytes in the queue, and of what is being sent. */
  #pendingBytes = 0;
  #sending: Promise<void> | undefined;
  #isFailing = false;
  #onDrained: (() => void)[] = [];
  readonly #abort = new AbortController();
  /** Ends the wait for a batch to fill. */
  readonly #hurry = new AbortController();
  #closing: Promise<void> | undefined;

  constructor({ sink, cache, read, maxBufferBytes, observer }: RemoteLogOptions) {
    this.#sink = sink;
    this.#cache = cache;
    this.#read = read;
    this.#observer = observer;
    this.#drops = new DropReport(observer);
    this.#maxBufferBytes = maxBufferBytes;
  }

  get droppedLines(): number {
    return this.#drops.total;
  }

  write(stream: StreamName, chunk: Buffer): boolean {
    if (this.#closing) return true;
    const isCacheReady = this.#cache?.write(stream, chunk) ?? true;
    const state = this.#streams[stream];
    const now = wallClockNs();
    for (let at = 0; at < chunk.length;)
      at = state.splitter.take(chunk, at, (source, from, to, piece) =>
        this.#add(stream, state, source.subarray(from, to), piece, now),
      );
    this.#send();
    return isCacheReady && this.#hasRoom(this.#limitBytes);
  }

  onceDrained(callback: () => void): void {
    const ready = (): void => (this.#cache ? this.#cache.onceDrained(callback) : callback());
    if (this.#hasRoom(this.#limitBytes / 2)) ready();
    else this.#onDrained.push(ready);
  }

  /** Waits for the local cache only: what is on its way to the remote side is lost with this process. */
  written(): Promise<void> | undefined {
    return this.#cache?.written();
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  read(options: LogReadOptions): AsyncIterableIterator<Buffer> {
    if (this.#cache) return this.#cache.read(options);
    if (this.#read) return this.#read(options);
    throw notImplemented('configured logging driver does not support reading', { code: 'LOG_UNREADABLE' });
  }

  get #isLossy(): boolean {
    return this.#maxBufferBytes !== undefined || this.#sink.isLossy;
  }

  get #limitBytes(): number {
    return this.#maxBufferBytes ?? this.#sink.queueBytes;
  }

  #hasRoom(limitBytes: number): boolean {
    return this.#isLossy || this.#pendingBytes <= limitBytes;
  }

  #add(stream: StreamName, state: StreamState, line: Buffer, piece: Piece | undefined, now: bigint): void {
    if (piece?.ordinal === 1) state.longLineNs = now;
    const bytes = line.length + RECORD_BYTES;
    // The newest line is dropped, unless it would be the only one.
    if (this.#isLossy && this.#pendingBytes > 0 && this.#pendingBytes + bytes > this.#limitBytes)
      return this.#drops.add(1);
    // The line is copied, because the chunk belongs to the reader and is much larger.
    this.#queue.push({ stream, timeNs: piece ? state.longLineNs : now, line: Buffer.from(line), piece });
    this.#pendingBytes += bytes;
  }

  #send(): void {
    if (this.#queue.length > 0) this.#sending ??= this.#sendQueue();
  }

  async #sendQueue(): Promise<void> {
    let sliceEndMs = performance.now() + SLICE_MS;
    while (this.#queue.length > 0) {
      const { batchRecords, lingerMs } = this.#sink;
      if (lingerMs > 0 && this.#queue.length < batchRecords)
        await sleep(lingerMs, undefined, { signal: this.#hurry.signal }).catch(() => undefined);
      const batch = this.#queue.splice(0, batchRecords);
      try {
        this.#abort.signal.throwIfAborted();
        await this.#sink.send(batch, this.#abort.signal);
        this.#isFailing = false;
      } catch (error) {
        this.#drops.add(batch.length);
        if (!this.#isFailing) this.#observer.failed(error, 'log lines are lost');
        this.#isFailing = true;
      }
      this.#pendingBytes -= batch.reduce((sum, { line }) => sum + line.length + RECORD_BYTES, 0);
      this.#settle();
      if (performance.now() < sliceEndMs) continue;
      await nextTurn();
      sliceEndMs = performance.now() + SLICE_MS;
    }
    this.#sending = undefined;
  }

  #settle(): void {
    if (!this.#hasRoom(this.#limitBytes / 2)) return;
    const callbacks = this.#onDrained;
    this.#onDrained = [];
    for (const callback of callbacks) callback();
  }

  async #close(): Promise<void> {
    for (const stream of ['stdout', 'stderr'] as const) {
      const state = this.#streams[stream];
      state.splitter.end((source, from, to, piece) =>
        this.#add(stream, state, source.subarray(from, to), piece, wallClockNs()),
      );
    }
    // The cache is closed at once, so that followers of the log need not wait for the remote side.
    await Promise.all([this.#cache?.close(), this.#finish()]);
  }

  async #finish(): Promise<void> {
    this.#hurry.abort();
    this.#send();
    const timeUp = setTimeout(() => this.#abort.abort(), CLOSE_MS);
    await this.#sending;
    clearTimeout(timeUp);
    this.#sink.close();
    this.#drops.tell();
  }
}
