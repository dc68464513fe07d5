/**
 * The progress of one build: what its observer hears becomes status messages, which every reader gets from the first
 * one on, in order and without a gap. Readers may be slow: messages are on disk, and only the newest are in memory,
 * too.
 */
import { mkdir, open, type FileHandle } from 'node:fs/promises';
import { dirname } from 'node:path';
import type { BuildObserver, BuildStatus, BuildVertex, BuildWarning } from '../../ports/build.js';
import { encode, PIECE_BYTES } from './grpc-messages.js';
import { StatusResponseSchema } from './proto/gen/control_pb.js';
import { timestamp } from './timestamp.js';

/** Events that come within this time share a message. */
const GATHER_MS = 20;
const GATHER_BYTES = 64 * 1024;
/** So much is written at once: of a short build nothing is, whose log is in its record in the end. */
const WRITE_BYTES = 64 * 1024;
/** So much stays in memory for those who read along. */
const RECENT_BYTES = 1024 * 1024;
/** So much waits for a slow disk before steps have to, and so much is kept when the disk takes nothing more. */
const WAITING_BYTES = 8 * 1024 * 1024;
/** A longer log is treated as one that the disk refuses: a step may print without end. */
const MAX_LOG_BYTES = 2 ** 30;
const LENGTH_BYTES = 4;

/** The Dockerfiles of all warnings of one build together. */
const MAX_SOURCE_BYTES = 16 << 20;

type Shape = {
  vertexes: object[];
  statuses: object[];
  logs: object[];
  warnings: object[];
};

/** How far a build has come. */
export interface StepCounts {
  readonly total: number;
  readonly completed: number;
  readonly cached: number;
  readonly warnings: number;
}

export interface DockerfileSource {
  readonly name: string;
  readonly text: Buffer;
}

interface Recent {
  readonly offset: number;
  readonly message: Buffer;
}

interface Step {
  readonly isOver: boolean;
  /** It is over, and has not failed. */
  readonly completed: boolean;
  readonly cached: boolean;
  readonly shape: object;
  readonly bytes: number;
  /** The number of the message that told it last. */
  toldAt: number;
}

export class ProgressLog implements BuildObserver {
  #gathered: Shape = emptyShape();
  #gatheredBytes = 0;
  #timer: NodeJS.Timeout | undefined;
  /** The newest messages, all that are not on disk yet among them. */
  #recent: Recent[] = [];
  #recentBytes = 0;
  #length = 0;
  /** So many have left. */
  #messages = 0;
  /** Pieces that the disk gets next: messages, each after its length. */
  #unwritten: Buffer[] = [];
  #unwrittenBytes = 0;
  #written = 0;
  #isEnded = false;
  /** The disk has refused a message, or has enough of them, so none that comes later is written. */
  #isBroken = false;
  readonly #readers = new Set<() => void>();
  readonly #steps = new Map<string, Step>();
  #warnings = 0;
  #source: DockerfileSource | undefined;
  #sourceBytes = 0;
  readonly #path: string | undefined;
  readonly #maxBytes: number;
  #file: FileHandle | undefined;
  #writing: Promise<void> = Promise.resolve();

  /**
   * @param path of the file that is made for a long log, with its directory; undefined: all stays in memory, for builds
   *   that do nothing.
   */
  constructor(path: string | undefined, maxBytes = MAX_LOG_BYTES) {
    this.#path = path;
    this.#maxBytes = maxBytes;
  }

  get counts(): StepCounts {
    const steps = [...this.#steps.values()];
    return {
      total: steps.length,
      completed: steps.filter(({ completed }) => completed).length,
      cached: steps.filter(({ cached }) => cached).length,
      warnings: this.#warnings,
    };
  }

  vertex({ digest, inputs, name, cached, started, completed, error }: BuildVertex): void {
    const shape = {
      digest,
      inputs: [...inputs],
      name,
      cached,
      error: error ?? '',
      ...(started !== undefined && { started: timestamp(started) }),
      ...(completed !== undefined && { completed: timestamp(completed) }),
    };
    const bytes = 200 + name.length + inputs.length * 71;
    const isOver = completed !== undefined;
    const step = { isOver, completed: isOver && error === undefined, cached, shape, bytes, toldAt: 0 };
    this.#steps.set(digest, step);
    this.#tell(step);
  }

  #tell(step: Step): void {
    step.toldAt = this.#gather('vertexes', step.shape, step.bytes);
  }

  status({ id, vertex, name, current, total, started, completed }: BuildStatus): void {
    const shape = {
      id,
      vertex,
      name,
      current: BigInt(Math.trunc(current)),
      total: BigInt(Math.trunc(total)),
      timestamp: timestamp(Date.now()),
      ...(started !== undefined && { started: timestamp(started) }),
      ...(completed !== undefined && { completed: timestamp(completed) }),
    };
    this.#gather('statuses', shape, 150 + id.length + name.length);
  }

  log(vertex: string, stream: 1 | 2, bytes: Buffer): void {
    const now = timestamp(Date.now());
    // Clients refuse messages of 4 MiB.
    for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
      const msg = Buffer.from(bytes.subarray(at, at + PIECE_BYTES));
      this.#gather('logs', { vertex, timestamp: now, stream: BigInt(stream), msg }, 100 + msg.length);
    }
  }

  classic(): void {}

  /** Resolves when the disk has taken most of what was said. */
  async ready(): Promise<void> {
    if (this.#recentBytes > WAITING_BYTES && !this.#isBroken) await this.#writing;
  }

  /** Names the Dockerfile, of which warnings show lines. */
  setSource(source: DockerfileSource): void {
    this.#source = source;
  }

  warning({ vertex, level, short, detail, url, ranges }: BuildWarning): void {
    this.#warnings++;
    const source = this.#sourceFor();
    const shape = {
      vertex,
      level: BigInt(level),
      short: Buffer.from(short),
      detail: detail.map((line) => Buffer.from(line)),
      url,
      ...(source !== undefined && {
        info: { filename: source.name, data: source.text, language: 'Dockerfile' },
      }),
      ranges: ranges.map(({ start, end }) => ({ start: { line: start }, end: { line: end } })),
    };
    const number = this.#gather('warnings', shape, 1000 + (source?.text.length ?? 0));
    // A client that has shown the end of a step looks for its warnings only when it hears of the step again.
    const step = this.#steps.get(vertex);
    if (step?.isOver === true && step.toldAt < number) this.#tell(step);
  }

  /** Each warning has the whole Dockerfile. When that comes to too much, clients show the last ones without lines. */
  #sourceFor(): DockerfileSource | undefined {
    this.#sourceBytes += this.#source?.text.length ?? 0;
    return this.#sourceBytes > MAX_SOURCE_BYTES ? undefined : this.#source;
  }

  /** Ends the readers when they have all. Resolves with all of a short log, without it when it is on the disk. */
  async end(): Promise<Buffer | undefined> {
    this.#flush();
    this.#isEnded = true;
    this.#wake();
    if (this.#unwrittenBytes === this.#length) return Buffer.concat(this.#unwritten);
    this.#write();
    await this.#writing;
    if (!this.#isBroken) await this.#file?.sync();
    await this.#file?.close();
    this.#file = undefined;
    return undefined;
  }

  /** Yields the messages from the first one on, until the build is over. */
  async *read(signal?: AbortSignal): AsyncGenerator<Buffer> {
    let offset = 0;
    for (;;) {
      if (signal?.aborted === true) return;
      const oldest = this.#recent[0];
      const written = Math.min(oldest?.offset ?? this.#length, this.#written);
      if (offset < written && this.#path !== undefined) {
        for await (const message of readMessages(this.#path, offset, written)) {
          offset += LENGTH_BYTES + message.length;
          yield message;
        }
        continue;
      }
      const next = this.#recent.find((recent) => recent.offset >= offset);
      if (next !== undefined) {
        offset = next.offset + LENGTH_BYTES + next.message.length;
        yield next.message;
      } else if (this.#isEnded) {
        return;
      } else {
        await this.#more(signal);
      }
    }
  }

  async #more(signal?: AbortSignal): Promise<void> {
    await new Promise<void>((resolve) => {
      const wake = (): void => {
        this.#readers.delete(wake);
        signal?.removeEventListener('abort', wake);
        resolve();
      };
      this.#readers.add(wake);
      signal?.addEventListener('abort', wake, { once: true });
    });
  }

  /** Returns the number of the message that it is in. */
  #gather(kind: keyof Shape, shape: object, bytes: number): number {
    if (this.#isEnded) return this.#messages;
    // Readers take the steps of a message first, so the end of a step must not overtake its last lines.
    const overtakes = kind === 'vertexes' && this.#gathered.logs.length > 0;
    if (overtakes || this.#gatheredBytes + bytes > PIECE_BYTES) this.#flush();
    this.#gathered[kind].push(shape);
    this.#gatheredBytes += bytes;
    const number = this.#messages;
    if (this.#gatheredBytes >= GATHER_BYTES) this.#flush();
    else this.#timer ??= setTimeout(() => this.#flush(), GATHER_MS);
    return number;
  }

  #flush(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    if (this.#gatheredBytes === 0) return;
    const message = encode(StatusResponseSchema, this.#gathered);
    this.#gathered = emptyShape();
    this.#gatheredBytes = 0;
    this.#messages++;
    this.#recent.push({ offset: this.#length, message });
    this.#recentBytes += message.length;
    this.#length += LENGTH_BYTES + message.length;
    const length = Buffer.alloc(LENGTH_BYTES);
    length.writeUInt32BE(message.length);
    this.#unwritten.push(length, message);
    this.#unwrittenBytes += LENGTH_BYTES + message.length;
    if (this.#unwrittenBytes >= WRITE_BYTES) this.#write();
    this.#wake();
  }

  #write(): void {
    const [path, pieces, bytes] = [this.#path, this.#unwritten, this.#unwrittenBytes];
    this.#unwritten = [];
    this.#unwrittenBytes = 0;
    if (path === undefined || bytes === 0) return;
    this.#writing = this.#writing.then(async () => {
      if (this.#written > this.#maxBytes) this.#isBroken = true;
      if (this.#isBroken) return this.#forget();
      // A disk that is full costs the oldest part of the log, not the build.
      try {
        this.#file ??= await this.#create(path);
        await this.#file.writev(pieces, this.#written);
        this.#written += bytes;
      } catch {
        this.#isBroken = true;
      }
      this.#forget();
    });
  }

  async #create(path: string): Promise<FileHandle> {
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    return open(path, 'w', 0o600);
  }

  /** Drops messages from memory that are on disk, the oldest first; without a disk those that are too many. */
  #forget(): void {
    while (this.#recentBytes > (this.#isBroken ? WAITING_BYTES : RECENT_BYTES)) {
      const oldest = this.#recent[0];
      if (oldest === undefined) return;
      if (!this.#isBroken && oldest.offset + LENGTH_BYTES + oldest.message.length > this.#written) return;
      this.#recent.shift();
      this.#recentBytes -= oldest.message.length;
    }
  }

  #wake(): void {
    for (const wake of this.#readers) wake();
  }
}

function emptyShape(): Shape {
  return { vertexes: [], statuses: [], logs: [], warnings: [] };
}

/** Yields the messages of a log on disk. @param end is where it stops; absent: at the end of the last whole message. */
export async function* readMessages(path: string, start = 0, end = Number.MAX_SAFE_INTEGER): AsyncGenerator<Buffer> {
  const file = await open(path, 'r');
  try {
    const head = Buffer.alloc(LENGTH_BYTES);
    for (let offset = start; offset < end;) {
      const { bytesRead } = await file.read(head, 0, LENGTH_BYTES, offset);
      if (bytesRead < LENGTH_BYTES) return;
      const length = head.readUInt32BE(0);
      if (length > 2 * PIECE_BYTES) return;
      const message = Buffer.alloc(length);
      const body = await file.read(message, 0, length, offset + LENGTH_BYTES);
      if (body.bytesRead < length) return;
      offset += LENGTH_BYTES + length;
      yield message;
    }
  } finally {
    await file.close();
  }
}

/** Yields the messages of a log that is in memory. */
export async function* messagesOf(log: Buffer): AsyncGenerator<Buffer> {
  for (let at = 0; at + LENGTH_BYTES <= log.length;) {
    const end = at + LENGTH_BYTES + log.readUInt32BE(at);
    yield log.subarray(at + LENGTH_BYTES, end);
    at = end;
  }
}
