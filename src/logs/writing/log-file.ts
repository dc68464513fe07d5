/** The writing end of a log's files: appends whole records, rotates, and compresses rotated files. */
import { constants, ftruncate as ftruncateCallback, writev as writevCallback, writevSync } from 'node:fs';
import { rename, rm } from 'node:fs/promises';
import { promisify } from 'node:util';
import { compressFile } from './gzip.js';
import { openRotated, openSegment, removeLeftovers, type LogSource } from './log-files.js';
import type { Segment } from '../reading/segment.js';

const writev = promisify(writevCallback);
/**
 * So many bytes reach the page cache within some ten microseconds. They are written at once, because a task of the
 * thread pool costs more than that.
 */
const AT_ONCE_BYTES = 16 << 10;
const ftruncate = promisify(ftruncateCallback);

const FLAGS = constants.O_RDWR | constants.O_APPEND | constants.O_CREAT;
const MODE = 0o640;

export interface RotationPolicy {
  /** The file is rotated before a record when it has at least this size. Infinity: never. */
  readonly maxBytes: number;
  /** So many files are kept, including the one being written. */
  readonly maxFiles: number;
  readonly compress: boolean;
}

export class LogFile {
  #segment: Segment;
  #exclusive: Promise<unknown> = Promise.resolve();
  #compressing: Promise<void> = Promise.resolve();

  private constructor(
    readonly path: string,
    readonly policy: RotationPolicy,
    segment: Segment,
    private readonly onFailure: (error: unknown, what: string) => void,
  ) {
    this.#segment = segment;
  }

  /**
   * Opens the file for appending. `findEnd` returns where its last whole record ends; anything after it was left by a
   * crash and is cut off. `onFailure` is called for failures that do not stop the log.
   */
  static async open(
    path: string,
    policy: RotationPolicy,
    findEnd: (segment: Segment) => Promise<number>,
    onFailure: (error: unknown, what: string) => void,
  ): Promise<LogFile> {
    await removeLeftovers(path);
    const segment = await openSegment(path, FLAGS, MODE);
    try {
      const end = await findEnd(segment);
      if (end < segment.size) {
        onFailure(undefined, `cut off ${segment.size - end} bytes of an unfinished record`);
        await ftruncate(segment.fd, end);
        segment.size = end;
      }
      return new LogFile(path, policy, segment, onFailure);
    } catch (error) {
      segment.release();
      throw error;
    }
  }

  /** The file being written. */
  get segment(): Segment {
    return this.#segment;
  }

  /** Appends whole records. If that fails, the file is as before, and the error is thrown. */
  async append(records: readonly Buffer[]): Promise<void> {
    const segment = this.#segment;
    const total = records.reduce((sum, { length }) => sum + length, 0);
    let rest: readonly Buffer[] = records;
    let written = 0;
    try {
      for (;;) {
        written +=
          total <= AT_ONCE_BYTES ? writevSync(segment.fd, rest) : (await writev(segment.fd, rest)).bytesWritten;
        if (written === total) break;
        rest = skip(records, written);
      }
      segment.size += total;
    } catch (error) {
      if (written > 0) await ftruncate(segment.fd, segment.size);
      throw error;
    }
  }

  /** Begins a new file. If that fails, the old one is used further. */
  async rotate(lastTimeNs: bigint | undefined): Promise<void> {
    await this.#compressing;
    try {
      await this.#alone(() => this.#shift());
    } catch (error) {
      this.onFailure(error, 'rotation failed');
      return;
    }
    if (this.policy.compress && this.policy.maxFiles > 1) {
      this.#compressing = this.#compress(lastTimeNs).catch((error: unknown) =>
        this.onFailure(error, 'compression failed'),
      );
    }
  }

  /**
   * Returns the rotated files, oldest first, and the one being written, which the caller must release. Undefined once
   * the log is sealed.
   */
  snapshot(
    onDamage: (error: unknown) => void,
  ): Promise<{ readonly rotated: LogSource[]; readonly segment: Segment } | undefined> {
    return this.#alone(async () => {
      if (this.#segment.isSealed) return undefined;
      const rotated = await openRotated(this.path, onDamage);
      return { rotated, segment: this.#segment.acquire() };
    });
  }

  /** Ends the log: nothing may be appended any more. */
  async seal(): Promise<void> {
    await this.#alone(async () => {
      this.#segment.seal();
      this.#segment.release();
    });
  }

  /** Resolves when nothing is being compressed. */
  settled(): Promise<void> {
    return this.#compressing;
  }

  /** Runs a task alone: names change only while nobody opens them. */
  #alone<T>(task: () => Promise<T>): Promise<T> {
    const run = this.#exclusive.then(task);
    this.#exclusive = run.catch(() => undefined);
    return run;
  }

  async #shift(): Promise<void> {
    const { path } = this;
    const { maxFiles } = this.policy;
    const temp = `${path}.new.tmp`;
    const next = await openSegment(temp, FLAGS | constants.O_TRUNC, MODE);
    try {
      if (maxFiles > 1) {
        for (const extension of ['', '.gz']) {
          await rm(`${path}.${maxFiles - 1}${extension}`, { force: true });
          for (let i = maxFiles - 2; i >= 1; i--)
            await renameIfPresent(`${path}.${i}${extension}`, `${path}.${i + 1}${extension}`);
        }
        await renameIfPresent(path, `${path}.1`);
      }
      // The only file is replaced and not truncated, so that its readers can finish.
      await rename(temp, path);
    } catch (error) {
      next.release();
      throw error;
    }
    const old = this.#segment;
    this.#segment = next;
    old.seal(next);
    old.release();
  }

  async #compress(lastTimeNs: bigint | undefined): Promise<void> {
    const plain = `${this.path}.1`;
    const temp = `${plain}.gz.tmp`;
    await compressFile(plain, temp, lastTimeNs);
    await this.#alone(async () => {
      await rename(temp, `${plain}.gz`);
      await rm(plain, { force: true });
    });
  }
}

function skip(records: readonly Buffer[], bytes: number): Buffer[] {
  const rest: Buffer[] = [];
  let left = bytes;
  for (const record of records) {
    if (left < record.length) rest.push(record.subarray(left));
    left = Math.max(0, left - record.length);
  }
  return rest;
}

async function renameIfPresent(from: string, to: string): Promise<void> {
  try {
    await rename(from, to);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}
