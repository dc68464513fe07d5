/** The record and the log of each build that has ended, on disk. */
import { createHash } from 'node:crypto';
import { mkdir, readdir, readFile, rm, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { notFound } from '../../errors/engine-error.js';
import type { Logger } from '../../ports/logger.js';
import { replaceFile } from '../../sys/files/durable-file.js';
import { readMessages, type StepCounts } from './progress-log.js';

const MAX_RECORD_BYTES = 4 * 1024 * 1024;
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
  #ready: Promise<void> | undefined;

  constructor(
    root: string,
    private readonly limits: HistoryLimits,
    logger: Logger,
  ) {
    this.#root = root;
    this.#logger = logger;
  }

  /** Makes room for a build. Resolves with the path of its log. */
  async begin(record: BuildRecord): Promise<string> {
    await this.#load();
    const directory = this.#directory(record.ref);
    await rm(directory, { recursive: true, force: true });
    await mkdir(directory, { recursive: true, mode: 0o700 });
    this.#ended.delete(record.ref);
    this.#logBytes.delete(record.ref);
    this.#active.set(record.ref, record);
    this.#tell('started', record);
    return join(directory, LOG);
  }

  /** Keeps a build that has ended, with documents about it. */
  async complete(ended: BuildRecord, documents: readonly Attachment[] = []): Promise<void> {
    let record = ended;
    try {
      const attachments = await this.#attach(ended.ref, documents);
      record = { ...ended, attachments };
      await replaceFile(join(this.#directory(record.ref), RECORD), JSON.stringify(record));
      await this.#add(record);
      await this.#trim();
    } catch (err) {
      // The build itself is done: only its record is lost.
      this.#logger.warn({ err }, 'the record of a build could not be written');
    }
    this.#active.delete(record.ref);
    this.#tell('complete', record);
  }

  async #add(record: BuildRecord): Promise<void> {
    const log = await stat(join(this.#directory(record.ref), LOG)).catch(() => undefined);
    this.#logBytes.set(record.ref, log?.size ?? 0);
    this.#ended.set(record.ref, record);
  }

  async #attach(ref: string, documents: readonly Attachment[]): Promise<AttachmentDescriptor[]> {
    const described: AttachmentDescriptor[] = [];
    for (const { bytes, ...facts } of documents) {
      const hex = createHash('sha256').update(bytes).digest('hex');
      await replaceFile(join(this.#directory(ref), hex), bytes);
      described.push({ ...facts, digest: `sha256:${hex}`, sizeBytes: bytes.length });
    }
    return described;
  }

  /** Finds a document of any build; undefined when there is none with this digest. */
  async attachment(digest: string): Promise<{ readonly path: string; readonly sizeBytes: number } | undefined> {
    await this.#load();
    for (const { ref, attachments = [] } of this.#ended.values()) {
      const found = attachments.find((one) => one.digest === digest);
      if (found !== undefined)
        return { path: join(this.#directory(ref), digest.slice('sha256:'.length)), sizeBytes: found.sizeBytes };
    }
    return undefined;
  }

  /** Returns builds, the newest first. */
  async list(): Promise<{ readonly active: BuildRecord[]; readonly ended: BuildRecord[] }> {
    await this.#load();
    const newestFirst = (a: BuildRecord, b: BuildRecord): number => b.createdMs - a.createdMs;
    return {
      active: [...this.#active.values()].toSorted(newestFirst),
      ended: [...this.#ended.values()].toSorted(newestFirst),
    };
  }

  /** Yields the log of a build that has ended; undefined when there is no such build. */
  async log(ref: string): Promise<AsyncGenerator<Buffer> | undefined> {
    await this.#load();
    return this.#ended.has(ref) ? readMessages(join(this.#directory(ref), LOG)) : undefined;
  }

  /** @throws EngineError not-found. */
  async pin(ref: string, pinned: boolean): Promise<void> {
    await this.#load();
    const record = this.#ended.get(ref);
    if (record === undefined) throw notFound(`build ${ref} not found`);
    const next = { ...record, pinned };
    await replaceFile(join(this.#directory(ref), RECORD), JSON.stringify(next));
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
      const record = await readRecord(join(this.#root, name, RECORD));
      if (record === undefined || this.#directory(record.ref) !== join(this.#root, name))
        await rm(join(this.#root, name), { recursive: true, force: true });
      else await this.#add(record);
    }
    await this.#trim();
  }

  async #trim(): Promise<void> {
    const loose = [...this.#ended.values()].filter(({ pinned }) => !pinned);
    loose.sort((a, b) => b.createdMs - a.createdMs);
    const { maxEntries, maxAgeMs } = this.limits;
    const oldest = Date.now() - maxAgeMs;
    for (const { ref, createdMs, completedMs = createdMs } of loose.slice(maxEntries))
      if (completedMs <= oldest) await this.#drop(ref);
    // A step may print without end. The newest build stays, because its client may still read what it has printed.
    let bytes = [...this.#logBytes.values()].reduce((sum, size) => sum + size, 0);
    for (const { ref } of loose.slice(1).toReversed()) {
      if (bytes <= this.limits.maxLogBytes) break;
      bytes -= this.#logBytes.get(ref) ?? 0;
      await this.#drop(ref);
    }
  }
}

async function readRecord(path: string): Promise<BuildRecord | undefined> {
  try {
    const bytes = await readFile(path);
    return bytes.length > MAX_RECORD_BYTES ? undefined : (JSON.parse(bytes.toString()) as BuildRecord);
  } catch {
    return undefined;
  }
}
