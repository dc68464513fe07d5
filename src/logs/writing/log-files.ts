/**
 * The files of one log: `name` is being written, `name.1` is the newest rotated file, and `.gz` marks a compressed one.
 */
import { randomBytes } from 'node:crypto';
import { open, readdir, rm, type FileHandle } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { closeSync, constants, fstat as fstatCallback, open as openCallback } from 'node:fs';
import { promisify } from 'node:util';
import { lastTimeOf, unpack } from './gzip.js';
import { Segment } from '../reading/segment.js';

const openFd = promisify(openCallback);
const fstat = promisify(fstatCallback);

/** Opening a pipe in the place of a file would hold a thread of the pool until somebody opens its other end. */
const WITHOUT_WAITING = constants.O_NONBLOCK | constants.O_NOCTTY;

/**
 * Opens a file as a segment; with O_CREAT it is created if it is missing. Throws for what is no regular file: reading a
 * pipe would wait, and a device may have no end.
 */
export async function openSegment(path: string, flags: number, mode?: number): Promise<Segment> {
  const fd = await openFd(path, flags | WITHOUT_WAITING, mode);
  try {
    const stats = await fstat(fd);
    if (!stats.isFile()) throw new Error(`${path} is not a regular file`);
    const { size, ino } = stats;
    return new Segment(fd, size, false, ino);
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** A file of a log, opened when the reader comes, and unpacked only when it is read. */
export class LogSource {
  #segment: Promise<Segment> | undefined;

  private constructor(
    readonly path: string,
    private readonly file: FileHandle,
    private readonly isCompressed: boolean,
    private readonly onDamage: (error: unknown) => void,
  ) {}

  static async open(path: string, onDamage: (error: unknown) => void): Promise<LogSource> {
    const file = await open(path, constants.O_RDONLY | WITHOUT_WAITING);
    return new LogSource(path, file, path.endsWith('.gz'), onDamage);
  }

  /** Returns the time of the last record if it is known without reading the file. */
  lastTimeNs(): Promise<bigint | undefined> {
    return this.isCompressed ? lastTimeOf(this.file) : Promise.resolve(undefined);
  }

  /** Returns the content; the source holds it until it is closed. */
  segment(): Promise<Segment> {
    this.#segment ??= this.#open();
    return this.#segment;
  }

  /** Frees everything, at once or when it has been opened. Idempotent. */
  async close(): Promise<void> {
    const segment = this.#segment;
    this.#segment = Promise.reject(new Error('the log file is closed'));
    this.#segment.catch(() => undefined);
    await this.file.close();
    // A file that could not be opened holds nothing.
    await segment?.then(
      (open) => open.release(),
      () => undefined,
    );
  }

  async #open(): Promise<Segment> {
    // The file is opened by its descriptor, because its name may mean another file by now.
    if (!this.isCompressed) return sealed(await openSegment(`/proc/self/fd/${this.file.fd}`, 0));
    const path = `${this.path}.${randomBytes(6).toString('hex')}.tmp`;
    const target = await open(path, 'wx+', 0o600);
    try {
      await rm(path, { force: true });
      await unpack(this.file, target).catch(this.onDamage);
      return sealed(await openSegment(`/proc/self/fd/${target.fd}`, 0));
    } finally {
      await target.close();
    }
  }
}

function sealed(segment: Segment): Segment {
  segment.isSealed = true;
  return segment;
}

/**
 * Returns number and path of the rotated files, oldest first. If a file is there both plain and compressed, the plain
 * one counts, because it is complete.
 */
export async function rotatedFiles(path: string): Promise<{ readonly index: number; readonly path: string }[]> {
  const byIndex = new Map<number, string>();
  const name = basename(path);
  for (const entry of await directory(path)) {
    const match = entry.startsWith(`${name}.`) ? /^\.([1-9]\d{0,5})(\.gz)?$/.exec(entry.slice(name.length)) : null;
    if (!match) continue;
    const index = Number(match[1]);
    if (match[2] === undefined || !byIndex.has(index)) byIndex.set(index, join(dirname(path), entry));
  }
  return [...byIndex].map(([index, path]) => ({ index, path })).sort((a, b) => b.index - a.index);
}

/** Opens the rotated files, oldest first. */
export async function openRotated(path: string, onDamage: (error: unknown) => void): Promise<LogSource[]> {
  const sources: LogSource[] = [];
  try {
    for (const file of await rotatedFiles(path)) sources.push(await LogSource.open(file.path, onDamage));
    return sources;
  } catch (error) {
    await Promise.all(sources.map((source) => source.close()));
    throw error;
  }
}

/** Removes what a compression or a reader left behind when the daemon was killed. */
export async function removeLeftovers(path: string): Promise<void> {
  const name = basename(path);
  for (const entry of await directory(path)) {
    if (entry.startsWith(`${name}.`) && entry.endsWith('.tmp')) await rm(join(dirname(path), entry), { force: true });
  }
}

async function directory(path: string): Promise<string[]> {
  try {
    return await readdir(dirname(path));
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return [];
    throw error;
  }
}
