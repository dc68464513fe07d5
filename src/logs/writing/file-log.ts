/** The log of one running container, kept in files. */
import { constants } from 'node:fs';
import type { ContainerLog, LogLedger, LogReadOptions, StreamName } from '../../ports/logs.js';
import { DropReport } from './drop-report.js';
import type { LogFile } from './log-file.js';
import { openRotated, openSegment } from './log-files.js';
import { LogReader, type Block, type Follower, type LiveLog } from '../reading/log-reader.js';
import type { LogSnapshot } from '../reading/log-start.js';
import { LogWriter } from './log-writer.js';
import type { LogObserver } from '../observer.js';
import type { RecordFormat } from '../drivers/record-format.js';
import type { Segment } from '../reading/segment.js';
import { loggedSince } from '../reading/logged-since.js';

/** So many blocks are kept for other followers, which are a little behind the first. */
const SHARED_BLOCKS = 8;
/** So many deleted bytes are kept for a reader that is behind, beyond what the log may have on disk. */
const HELD_BYTES = 64 << 20;
const HELD_FILES = 256;

interface SharedBlock {
  readonly segment: Segment;
  readonly offset: number;
  readonly options: string;
  readonly block: Promise<Block>;
}

export class FileLog implements ContainerLog, LiveLog {
  readonly #writer: LogWriter;
  readonly #followers = new Set<Follower>();
  #shared: SharedBlock[] = [];
  #newest: Segment;
  /** Files that were rotated away while somebody read them. */
  #rotatedAway: Segment[] = [];
  readonly #drops: DropReport;
  #closing: Promise<void> | undefined;
  #isClosed = false;
  #onProgress: (() => void) | undefined;
  /** Records cannot be counted where lines are dropped, so there is none then. */
  readonly ledger: LogLedger | undefined;
  readonly #onClosed: () => void;

  constructor(
    /** The path as inspect shows it. */
    readonly path: string,
    private readonly file: LogFile,
    private readonly format: RecordFormat,
    private readonly observer: LogObserver,
    options: {
      readonly attrs: Readonly<Record<string, string>>;
      readonly lastTimeNs: bigint | undefined;
      readonly maxBufferBytes: number | undefined;
      readonly onClosed: () => void;
    },
  ) {
    this.#onClosed = options.onClosed;
    this.#newest = file.segment;
    this.#drops = new DropReport(observer);
    this.#writer = new LogWriter(
      file,
      format.createEncoder(options.attrs),
      {
        advanced: () => this.#advanced(),
        written: (bytes) => observer.written(bytes),
        dropped: (lines) => this.#drops.add(lines),
        failed: (error, what) => observer.failed(error, what),
      },
      options,
    );
    this.ledger = options.maxBufferBytes === undefined ? this.#ledger() : undefined;
  }

  get droppedLines(): number {
    return this.#drops.total;
  }

  write(stream: StreamName, chunk: Buffer): boolean {
    // Output after the end is ignored: the container's streams are closed before its log.
    return this.#closing !== undefined || this.#writer.write(stream, chunk);
  }

  onceDrained(callback: () => void): void {
    this.#writer.onceDrained(callback);
  }

  written(): Promise<void> | undefined {
    return this.#writer.written();
  }

  close(): Promise<void> {
    this.#closing ??= this.#close(this.#writer.end());
    return this.#closing;
  }

  read(options: LogReadOptions): AsyncIterableIterator<Buffer> {
    const { observer } = this;
    if (this.#isClosed) return readFiles(this.file.path, this.format, options, observer);
    return new LogReader(() => this.#snapshot(), this.format, options, this, observer);
  }

  addFollower(follower: Follower): void {
    this.#followers.add(follower);
  }

  removeFollower(follower: Follower): void {
    this.#followers.delete(follower);
    if (this.#followers.size < 2) this.#shared = [];
  }

  share(segment: Segment, offset: number, options: string, produce: () => Promise<Block>): Promise<Block> {
    if (this.#followers.size < 2) return produce();
    const known = this.#shared.find(
      (shared) => shared.segment === segment && shared.offset === offset && shared.options === options,
    );
    if (known) return known.block;
    const block = produce();
    const entry = { segment, offset, options, block };
    this.#shared.push(entry);
    if (this.#shared.length > SHARED_BLOCKS) this.#shared.shift();
    // A failed read is reported to its readers; the next reader tries again.
    block.catch(() => (this.#shared = this.#shared.filter((other) => other !== entry)));
    return block;
  }

  async #close(written: Promise<void>): Promise<void> {
    await written;
    this.#drops.tell();
    await this.file.seal();
    this.#isClosed = true;
    this.#advanced();
    await this.file.settled();
    this.#onClosed();
  }

  async #snapshot(): Promise<LogSnapshot> {
    // Output that a client saw elsewhere must be in the log, too.
    await this.#writer.flushed();
    const files = await this.file.snapshot((error) => this.observer.failed(error, 'compressed log file is damaged'));
    return files ? { ...files, end: files.segment.size } : openFiles(this.file.path, this.observer);
  }

  #ledger(): LogLedger {
    return {
      progress: () => this.#writer.progress,
      onProgress: (callback) => (this.#onProgress = callback),
      loggedSince: (place, bytes) =>
        loggedSince(place, bytes, { path: this.file.path, segment: this.file.segment, format: this.format }),
      leave: () => (this.#closing ??= this.#close(this.#writer.flushed())),
    };
  }

  #advanced(): void {
    this.#onProgress?.();
    if (this.file.segment !== this.#newest) {
      this.#rotatedAway = [...this.#rotatedAway, this.#newest].filter(({ isHeld }) => isHeld);
      this.#newest = this.file.segment;
      for (const segment of this.#rotatedAway) this.#limitHeld(segment);
    }
    for (const follower of this.#followers) {
      const { wake } = follower;
      follower.wake = undefined;
      wake?.();
    }
  }

  /** Limits the deleted files that are held, because a reader that stalls would fill the disk with them. */
  #limitHeld(from: Segment): void {
    let bytes = 0;
    let files = 0;
    for (let segment = from.next; segment; segment = segment.next) {
      bytes += segment.size;
      files++;
    }
    const { maxBytes, maxFiles } = this.file.policy;
    if (bytes > maxBytes * maxFiles + HELD_BYTES || files > HELD_FILES)
      this.observer.damaged(from.skipTo(this.#newest));
  }
}

/** Reads a log that nobody writes; a log without files reads as empty. */
export function readFiles(
  path: string,
  format: RecordFormat,
  options: LogReadOptions,
  observer: LogObserver,
): AsyncIterableIterator<Buffer> {
  return new LogReader(() => openFiles(path, observer), format, options, undefined, observer);
}

async function openFiles(path: string, observer: LogObserver): Promise<LogSnapshot> {
  const rotated = await openRotated(path, (error) => observer.failed(error, 'compressed log file is damaged'));
  try {
    const segment = await openSegment(path, constants.O_RDONLY);
    return { rotated, segment, end: segment.size };
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return { rotated, segment: undefined, end: 0 };
    await Promise.all(rotated.map((source) => source.close()));
    throw error;
  }
}
