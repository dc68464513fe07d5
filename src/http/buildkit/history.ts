/** The record and the log of each build that has ended, on disk. */
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { notFound } from '../../errors/engine-error.js';
import type { Logger } from '../../ports/logger.js';
import { replaceFile, syncDirectory, writeSynced } from '../../sys/files/durable-file.js';
import { ownMember } from '../../text/own-member.js';
import { messagesOf, readMessages, type StepCounts } from './progress-log.js';

const MAX_RECORD_BYTES = 4 * 1024 * 1024;
/** The log and the documents of a build are in its record when all of them together have no more. */
const WITHIN_BYTES = 128 * 1024;
const RECORD = 'record.json';
const LOG = 'log';

/** The record of a build, in the form in which it is kept. */
export interface BuildRecord {
  readonly ref: string;
  readonly frontend: string;
  readonly frontendAttrs: Readonly<Record<string, string>>;
  readonly exporters: readonly { readonly type: string; readonly attrs: Readonly<Record<string, string>> }[];
  readonly createdMs: number;
  /** Absent while the build is under way. */
  readonly completedMs?: number;
  /** google.rpc.Status in base64. */
  readonly error?: string;
  readonly exporterResponse: Readonly<Record<string, string>>;
  readonly counts: StepCounts;
  readonly pinned: boolean;
  /** Descriptions of documents about the build; absent where there are none. */
  readonly attachments?: readonly AttachmentDescriptor[];
}

/** A record as it is on the disk: one file for most builds, which is written and synced once. */
interface StoredRecord extends BuildRecord {
  /** In base64, by the names that files of their own would have. */
  readonly files?: Readonly<Record<string, string>>;
}

interface AttachmentFacts {
  readonly kind: 'result' | 'attestation' | 'error';
  readonly mediaType: string;
  /** Kind of statement that an attestation makes. */
  readonly predicateType?: string;
}

export interface AttachmentDescriptor extends AttachmentFacts {
  readonly digest: string;
  readonly sizeBytes: number;
}

export interface Attachment extends AttachmentFacts {
  readonly bytes: Buffer;
}

/** A build is forgotten when it is older than this, and more than these are newer. */
export interface HistoryLimits {
  readonly maxAgeMs: number;
  readonly maxEntries: number;
  /** The logs of all builds take so much of the disk. Beyond it the oldest build is forgotten, whatever its age. */
  readonly maxLogBytes: number;
}

export type HistoryChange = 'started' | 'complete' | 'deleted';
type Listener = (change: HistoryChange, record: BuildRecord) => void;

export class BuildHistory {
  readonly #root: string;
  readonly #logger: Logger;
  readonly #ended = new Map<string, BuildRecord>();
  readonly #active = new Map<string, BuildRecord>();
  /** The sizes of the logs of builds that have ended. */
  readonly #logBytes = new Map<string, number>();
  readonly #listeners = new Set<Listener>();
  /** Builds that have ended and are not on the disk yet. */
  readonly #writing = new Map<string, Promise<void>>();
  #ready: Promise<void> | undefined;

  constructor(
    root: string,
    private readonly limits: HistoryLimits,
    logger: Logger,
  ) {
    this.#root = root;
    this.#logger = logger;
  }

  /** Makes room for a build. Resolves with the path of its log, whose directory need not be there. */
  async begin(record: BuildRecord): Promise<string> {
    await this.#load();
    await this.#writing.get(record.ref);
    const directory = this.#directory(record.ref);
    if (this.#ended.has(record.ref)) await rm(directory, { recursive: true, force: true });
    this.#ended.delete(record.ref);
    this.#logBytes.delete(record.ref);
    this.#active.set(record.ref, record);
    this.#tell('started', record);
    return join(directory, LOG);
  }

  /**
   * Keeps a build that has ended, with documents about it. Everybody finds it at once. The promise resolves when it is
   * on the disk, which the client of the build need not wait for: a kill in that moment loses the record of a build,
   * and nothing that it has made.
   * @param logged resolves with the log, or without one when it is on the disk.
   */
  async complete(
    ended: BuildRecord,
    documents: readonly Attachment[],
    logged: Promise<Buffer | undefined>,
  ): Promise<void> {
    const { ref } = ended;
    const described = documents.map(describe);
    const record = { ...ended, attachments: described.map(({ descriptor }) => descriptor) };
    const writing = this.#write(record, described, logged);
    this.#writing.set(ref, writing);
    this.#ended.set(ref, record);
    this.#active.delete(ref);
    this.#tell('complete', record);
    await writing;
    if (this.#writing.get(ref) === writing) this.#writing.delete(ref);
    await this.#trim().catch(() => undefined);
  }

  async #write(
    record: BuildRecord,
    documents: readonly Described[],
    logged: Promise<Buffer | undefined>,
  ): Promise<void> {
    const directory = this.#directory(record.ref);
    try {
      const log = await logged.catch(() => undefined);
      await mkdir(directory, { recursive: true, mode: 0o700 });
      const all = [...(log === undefined ? [] : [{ name: LOG, bytes: log }]), ...documents];
      const isShort = all.reduce((sum, { bytes }) => sum + bytes.length, 0) <= WITHIN_BYTES;
      if (!isShort) {
        // They need no other name meanwhile: without a record, which comes last, the directory counts for nothing.
        await Promise.all(all.map(({ name, bytes }) => writeSynced(join(directory, name), bytes, 'w')));
        await syncDirectory(directory);
      }
      const files = isShort && Object.fromEntries(all.map(({ name, bytes }) => [name, bytes.toString('base64')]));
      await replaceFile(join(directory, RECORD), JSON.stringify({ ...record, ...(files && { files }) }));
      if (log === undefined) await this.#measure(record.ref);
      else this.#logBytes.set(record.ref, log.length);
    } catch (err) {
      // The build itself is done: only its record is lost.
      this.#logger.warn({ err }, 'the record of a build could not be written');
      if (this.#ended.get(record.ref) === record) this.#ended.delete(record.ref);
    }
  }

  /** Resolves when all builds that have ended are on the disk. */
  async settled(): Promise<void> {
    await Promise.all(this.#writing.values());
  }

  async #measure(ref: string): Promise<void> {
    const log = await stat(join(this.#directory(ref), LOG)).catch(() => undefined);
    this.#logBytes.set(ref, log?.size ?? 0);
  }

  /** Returns what is in the record of a build under this name. */
  async #within(ref: string, name: string): Promise<Buffer | undefined> {
    const text = ownMember((await this.#stored(ref))?.files, name);
    return text === undefined ? undefined : Buffer.from(text, 'base64');
  }

  #stored(ref: string): Promise<StoredRecord | undefined> {
    return readRecord(join(this.#directory(ref), RECORD));
  }

  /** Finds a document of any build, its bytes or the path of a file; undefined when there is none with this digest. */
  async attachment(
    digest: string,
  ): Promise<{ readonly content: Buffer | string; readonly sizeBytes: number } | undefined> {
    await this.#load();
    for (const { ref, attachments = [] } of this.#ended.values()) {
      const found = attachments.find((one) => one.digest === digest);
      if (found === undefined) continue;
      await this.#writing.get(ref);
      const name = digest.slice('sha256:'.length);
      const content = (await this.#within(ref, name)) ?? join(this.#directory(ref), name);
      return { content, sizeBytes: found.sizeBytes };
    }
    return undefined;
  }

  /** Returns builds, the newest first. @param activeOnly leaves out those that have ended: they may be thousands. */
  async list(activeOnly = false): Promise<{ readonly active: BuildRecord[]; readonly ended: BuildRecord[] }> {
    await this.#load();
    return {
      active: [...this.#active.values()].sort(newestFirst),
      ended: activeOnly ? [] : [...this.#ended.values()].sort(newestFirst),
    };
  }

  /** Yields the log of a build that has ended; undefined when there is no such build. */
  async log(ref: string): Promise<AsyncIterable<Buffer> | undefined> {
    await this.#load();
    await this.#writing.get(ref);
    if (!this.#ended.has(ref)) return undefined;
    const log = await this.#within(ref, LOG);
    return log === undefined ? readMessages(join(this.#directory(ref), LOG)) : messagesOf(log);
  }

  /** @throws EngineError not-found. */
  async pin(ref: string, pinned: boolean): Promise<void> {
    await this.#load();
    await this.#writing.get(ref);
    const record = this.#ended.get(ref);
    if (record === undefined) throw notFound(`build ${ref} not found`);
    const next = { ...record, pinned };
    const { files } = (await this.#stored(ref)) ?? {};
    await replaceFile(join(this.#directory(ref), RECORD), JSON.stringify({ ...next, ...(files && { files }) }));
    this.#ended.set(ref, next);
  }

  /** @throws EngineError not-found. */
  async remove(ref: string): Promise<void> {
    await this.#load();
    if (!(await this.#drop(ref))) throw notFound(`build ${ref} not found`);
  }

  /** Removes a build; returns false when there is none. It does not wait for `#load`, which calls it. */
  async #drop(ref: string): Promise<boolean> {
    const record = this.#ended.get(ref);
    if (record === undefined) return false;
    this.#ended.delete(ref);
    await this.#writing.get(ref);
    this.#logBytes.delete(ref);
    await rm(this.#directory(ref), { recursive: true, force: true });
    this.#tell('deleted', record);
    return true;
  }

  /** Calls back at each change until the returned function is called. */
  subscribe(listener: Listener): () => void {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  #tell(change: HistoryChange, record: BuildRecord): void {
    for (const listener of this.#listeners) listener(change, record);
  }

  #directory(ref: string): string {
    return join(this.#root, createHash('sha256').update(ref).digest('hex').slice(0, 32));
  }

  #load(): Promise<void> {
    return (this.#ready ??= this.#read());
  }

  /** Reads what is there, and removes what a daemon that was killed left of builds that were under way. */
  async #read(): Promise<void> {
    await mkdir(this.#root, { recursive: true, mode: 0o700 });
    for (const name of await readdir(this.#root)) {
      const stored = await readRecord(join(this.#root, name, RECORD));
      if (stored === undefined || this.#directory(stored.ref) !== join(this.#root, name)) {
        await rm(join(this.#root, name), { recursive: true, force: true });
        continue;
      }
      const { files, ...record } = stored;
      const log = ownMember(files, LOG);
      if (log === undefined) await this.#measure(record.ref);
      else this.#logBytes.set(record.ref, Buffer.byteLength(log, 'base64'));
      this.#ended.set(record.ref, record);
    }
    await this.#trim();
  }

  async #trim(): Promise<void> {
    const { maxEntries, maxAgeMs, maxLogBytes } = this.limits;
    const oldest = Date.now() - maxAgeMs;
    let bytes = 0;
    for (const size of this.#logBytes.values()) bytes += size;
    // Mostly nothing is to go: thousands of builds are not sorted after each one.
    if (bytes <= maxLogBytes && !this.#hasOlder(oldest)) return;
    const loose = [...this.#ended.values()].filter(({ pinned }) => !pinned).sort(newestFirst);
    const drop = async ({ ref }: BuildRecord): Promise<void> => {
      bytes -= this.#logBytes.get(ref) ?? 0;
      await this.#drop(ref);
    };
    for (const record of loose.slice(maxEntries)) if (endOf(record) <= oldest) await drop(record);
    // A step may print without end. The newest build stays, because its client may still read what it has printed.
    for (const record of loose.slice(1).toReversed()) {
      if (bytes <= maxLogBytes) break;
      await drop(record);
    }
  }

  #hasOlder(time: number): boolean {
    for (const record of this.#ended.values()) if (!record.pinned && endOf(record) <= time) return true;
    return false;
  }
}

function newestFirst(a: BuildRecord, b: BuildRecord): number {
  return b.createdMs - a.createdMs;
}

function endOf({ createdMs, completedMs = createdMs }: BuildRecord): number {
  return completedMs;
}

/** A document under the name that its file has. */
interface Described {
  readonly name: string;
  readonly bytes: Buffer;
  readonly descriptor: AttachmentDescriptor;
}

function describe({ bytes, ...facts }: Attachment): Described {
  const name = createHash('sha256').update(bytes).digest('hex');
  return { name, bytes, descriptor: { ...facts, digest: `sha256:${name}`, sizeBytes: bytes.length } };
}

async function readRecord(path: string): Promise<StoredRecord | undefined> {
  try {
    const bytes = await readFile(path);
    return bytes.length > MAX_RECORD_BYTES ? undefined : (JSON.parse(bytes.toString()) as StoredRecord);
  } catch {
    return undefined;
  }
}
