/**
 * Events on disk: files of lines `<number> <event>`, each named by the number and the time of its first event. Appended
 * in batches and not synced, so that a crash of the machine, but not one of the daemon, may lose the last ones. The
 * oldest files are removed when all of them together are larger than the limit.
 */
import { open, readdir, rm, stat, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { parseLine, renderLine, type StoredEvent } from './event-json.js';
import { makeDirectories } from '../sys/files/make-directories.js';

const NAME = /^events-(\d{15})-(\d{19})\.log$/;
const READ_BYTES = 64 * 1024;

export interface FileLimits {
  readonly fileBytes: number;
  readonly totalBytes: number;
}

interface EventFile {
  readonly path: string;
  readonly first: number;
  readonly firstNs: bigint;
  bytes: number;
}

export class EventFiles {
  #current: FileHandle | undefined;

  private constructor(
    private readonly dir: string,
    private readonly limits: FileLimits,
    private readonly files: EventFile[],
    /** The last event on disk when the log was opened. */
    readonly last: StoredEvent | undefined,
  ) {}

  /** Opens the directory, which is made if it is missing, and cuts off an unfinished line at the end. */
  static async open(dir: string, limits: FileLimits): Promise<EventFiles> {
    await makeDirectories(dir, { mode: 0o700 });
    const files: EventFile[] = [];
    for (const name of await readdir(dir)) {
      const match = NAME.exec(name);
      if (match)
        files.push({
          path: join(dir, name),
          first: Number(match[1]),
          firstNs: BigInt(match[2] ?? 0),
          bytes: (await stat(join(dir, name))).size,
        });
    }
    files.sort((a, b) => a.first - b.first);
    let last: StoredEvent | undefined;
    for (const file of [...files].reverse()) {
      last = await repair(file);
      if (last) break;
    }
    return new EventFiles(dir, limits, files, last);
  }

  /** Returns the oldest event that is kept; undefined when there is none. */
  get oldest(): Pick<EventFile, 'first' | 'firstNs'> | undefined {
    return this.files[0];
  }

  /** Returns the number of an event that is not after the first one since that time, and at most one file before it. */
  findSince(sinceNs: bigint): number | undefined {
    return (this.files.findLast(({ firstNs }) => firstNs < sinceNs) ?? this.files[0])?.first;
  }

  /**
   * Appends events, in order, as many as go into one file; returns how many. When that fails nothing was appended, and
   * the error is thrown.
   */
  async append(events: readonly StoredEvent[]): Promise<number> {
    const [first] = events;
    if (!first) return 0;
    const { file, handle } = await this.#fileFor(first);
    let text = '';
    let count = 0;
    // Characters are counted as bytes here, because the limit need not be exact.
    for (const event of events) {
      if (count > 0 && file.bytes + text.length >= this.limits.fileBytes) break;
      text += `${renderLine(event)}\n`;
      count++;
    }
    try {
      await handle.appendFile(text);
      file.bytes += Buffer.byteLength(text);
    } catch (error) {
      await handle.truncate(file.bytes);
      throw error;
    }
    await this.#removeOld();
    return count;
  }

  async #removeOld(): Promise<void> {
    let total = this.files.reduce((sum, { bytes }) => sum + bytes, 0);
    while (total > this.limits.totalBytes && this.files.length > 1) {
      const oldest = this.files.shift();
      total -= oldest?.bytes ?? 0;
      if (oldest) await rm(oldest.path, { force: true });
    }
  }

  /** Returns a reader that begins with the event `from`, or with the oldest event after it that is kept. */
  reader(from: number): EventFileReader {
    return new EventFileReader(this.files, from);
  }

  async close(): Promise<void> {
    await this.#current?.close();
    this.#current = undefined;
  }

  async #fileFor(event: StoredEvent): Promise<{ readonly file: EventFile; readonly handle: FileHandle }> {
    const newest = this.files.at(-1);
    if (newest && newest.bytes < this.limits.fileBytes) {
      this.#current ??= await open(newest.path, 'a', 0o600);
      return { file: newest, handle: this.#current };
    }
    const name = `events-${String(event.sequence).padStart(15, '0')}-${String(event.timeNs).padStart(19, '0')}.log`;
    const file = { path: join(this.dir, name), first: event.sequence, firstNs: event.timeNs, bytes: 0 };
    const handle = await open(file.path, 'a', 0o600);
    await this.#current?.close();
    this.#current = handle;
    this.files.push(file);
    return { file, handle };
  }
}

/** Reads events from the disk in order, a block at a time. It holds a file open from its first read until `close`. */
export class EventFileReader {
  #file: EventFile | undefined;
  #handle: FileHandle | undefined;
  #offset = 0;

  constructor(
    private readonly files: readonly EventFile[],
    private readonly from: number,
  ) {}

  /** Returns the next events; [] when everything on disk was read. */
  async read(): Promise<StoredEvent[]> {
    for (;;) {
      if (!this.#handle && !(await this.#openNext())) return [];
      const events = await this.#readBlock();
      if (events.length > 0) return events;
      // The newest file may still grow.
      if (this.#file === this.files.at(-1)) return [];
      await this.close();
    }
  }

  async close(): Promise<void> {
    const handle = this.#handle;
    this.#handle = undefined;
    await handle?.close();
  }

  async #openNext(): Promise<boolean> {
    for (;;) {
      const after = this.#file?.first ?? -1;
      const next = this.#file
        ? this.files.find(({ first }) => first > after)
        : (this.files.findLast(({ first }) => first <= this.from) ?? this.files[0]);
      if (!next) return false;
      this.#file = next;
      this.#offset = 0;
      try {
        this.#handle = await open(next.path, 'r');
        return true;
      } catch (error) {
        // The file was removed meanwhile: the reader sees from the numbers that events are missing.
        if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
      }
    }
  }

  async #readBlock(): Promise<StoredEvent[]> {
    for (let size = READ_BYTES; this.#handle; size *= 4) {
      const { buffer, bytesRead } = await this.#handle.read(Buffer.allocUnsafe(size), 0, size, this.#offset);
      const end = buffer.subarray(0, bytesRead).lastIndexOf(10) + 1;
      if (end === 0 && bytesRead === size) continue;
      this.#offset += end;
      const events = buffer.toString('utf8', 0, end).split('\n').map(parseLine);
      const wanted = events.filter((event) => event !== undefined && event.sequence >= this.from) as StoredEvent[];
      if (wanted.length > 0 || end === 0) return wanted;
      size = READ_BYTES / 4;
    }
    return [];
  }
}

/** Cuts an unfinished line off, and returns the last event of the file. */
async function repair(file: EventFile): Promise<StoredEvent | undefined> {
  const handle = await open(file.path, 'r+');
  try {
    const size = file.bytes;
    for (let length = Math.min(size, READ_BYTES); ; length = Math.min(size, length * 4)) {
      const { buffer } = await handle.read(Buffer.alloc(length), 0, length, size - length);
      const end = buffer.lastIndexOf(10) + 1;
      const last = lastOf(buffer.toString('utf8', 0, end).split('\n'));
      if (!last && length < size) continue;
      if (end < length) {
        file.bytes = size - length + end;
        await handle.truncate(file.bytes);
      }
      return last;
    }
  } finally {
    await handle.close();
  }
}

/** Returns the event of the last line that has one. Those before it are not looked at: they may be many. */
function lastOf(lines: readonly string[]): StoredEvent | undefined {
  for (const line of lines.toReversed()) {
    const event = parseLine(line);
    if (event !== undefined) return event;
  }
  return undefined;
}
