/**
 * The journal of requests with keys: files of lines, one line when a request is begun and one when its reply is kept.
 * Each line is on the disk before its promise resolves; lines that come together share one write. A file is removed
 * when the newest of its lines is older than replies are kept.
 */
import { open, readdir, readFile, rm, stat, type FileHandle } from 'node:fs/promises';
import { join } from 'node:path';
import { syncDirectory } from '../sys/files/durable-file.js';
import { makeDirectories } from '../sys/files/make-directories.js';
import type { KeptReply } from '../ports/kept-replies.js';

/** A request as it is written down. */
export interface JournalEntry {
  readonly key: string;
  readonly fingerprint: string;
  readonly id: string;
  readonly begunMs: number;
  /** The time of the line, in milliseconds. */
  readonly atMs: number;
  /** Absent while the request is being done, null when it was dropped. */
  readonly reply?: KeptReply | null;
}

const NAME = /^replies-(\d{15})\.log$/;

interface Waiting {
  readonly line: string;
  readonly resolve: () => void;
  readonly reject: (error: unknown) => void;
}

export class ReplyJournal {
  #current: { readonly handle: FileHandle; readonly path: string; readonly begunMs: number } | undefined;
  /** Files by path, with the time of their newest line. */
  readonly #files = new Map<string, number>();
  #waiting: Waiting[] = [];
  #writing: Promise<void> | undefined;

  /**
   * @param dir is made with the first line.
   * @param keepMs is how long a line counts. A quarter of it goes into one file.
   */
  constructor(
    private readonly dir: string,
    private readonly keepMs: number,
  ) {}

  /**
   * Reads the lines of earlier daemons, oldest first. A line that a crash has cut off was never promised to anybody; it
   * is passed over, as is what is damaged. @returns the lines, and how many whole ones cannot be read.
   */
  async load(): Promise<{ readonly entries: JournalEntry[]; readonly damaged: number }> {
    const entries: JournalEntry[] = [];
    let damaged = 0;
    const names = await readdir(this.dir).catch(() => []);
    for (const name of names.filter((one) => NAME.test(one)).sort()) {
      const path = join(this.dir, name);
      const lines = (await readFile(path, 'utf8')).split('\n');
      lines.pop();
      const read = lines.map(parseEntry);
      damaged += read.filter((entry) => entry === undefined).length;
      entries.push(...read.filter((entry) => entry !== undefined));
      this.#files.set(path, Math.min(Date.now(), (await stat(path)).mtimeMs));
    }
    return { entries, damaged };
  }

  /** Writes a line; it survives a crash when the promise resolves. @throws the errno error of the file system. */
  append(entry: JournalEntry): Promise<void> {
    return new Promise((resolve, reject) => {
      this.#waiting.push({ line: `${JSON.stringify(entry)}\n`, resolve, reject });
      this.#writing ??= this.#writeAll().finally(() => {
        this.#writing = undefined;
      });
    });
  }

  async close(): Promise<void> {
    await this.#writing;
    await this.#current?.handle.close();
    this.#current = undefined;
  }

  async #writeAll(): Promise<void> {
    while (this.#waiting.length > 0) {
      const batch = this.#waiting;
      this.#waiting = [];
      try {
        await this.#write(batch.map(({ line }) => line).join(''));
        for (const { resolve } of batch) resolve();
      } catch (error) {
        for (const { reject } of batch) reject(error);
      }
    }
  }

  async #write(text: string): Promise<void> {
    const { handle, path } = await this.#file();
    const { size } = await handle.stat();
    try {
      await handle.appendFile(text);
      await handle.datasync();
    } catch (error) {
      // The part of it that is there must not become the beginning of the next line.
      await handle.truncate(size).catch(() => undefined);
      throw error;
    }
    this.#files.set(path, Date.now());
  }

  async #file(): Promise<{ readonly handle: FileHandle; readonly path: string }> {
    const nowMs = Date.now();
    const current = this.#current;
    // A clock that was set back would let one file grow for ever.
    if (current !== undefined && Math.abs(nowMs - current.begunMs) < this.keepMs / 4) return current;
    await makeDirectories(this.dir, { mode: 0o700 });
    const path = join(this.dir, `replies-${String(nowMs).padStart(15, '0')}.log`);
    const handle = await open(path, 'a', 0o600);
    await current?.handle.close();
    this.#current = { handle, path, begunMs: nowMs };
    this.#files.set(path, nowMs);
    await syncDirectory(this.dir);
    await this.#removeOld(nowMs, path);
    return this.#current;
  }

  async #removeOld(nowMs: number, inUse: string): Promise<void> {
    for (const [path, writtenMs] of this.#files) {
      if (path === inUse || nowMs - writtenMs <= this.keepMs) continue;
      await rm(path, { force: true });
      this.#files.delete(path);
    }
  }
}

function parseEntry(line: string): JournalEntry | undefined {
  try {
    const entry = JSON.parse(line) as Partial<JournalEntry>;
    const texts = [entry.key, entry.fingerprint, entry.id];
    const isWhole =
      texts.every((text) => typeof text === 'string') && Number.isFinite(entry.begunMs) && Number.isFinite(entry.atMs);
    return isWhole ? (entry as JournalEntry) : undefined;
  } catch {
    return undefined;
  }
}
