/**
 * The bytes of a blob on disk while it is fetched, so that they outlive the fetch. Its record says what of them is
 * certain: all of it as long as the machine runs, after a power cut only what was synced. In the end the digest decides.
 */
import { randomBytes } from 'node:crypto';
import { closeSync, fdatasync, fstatSync, ftruncateSync, openSync, readSync, renameSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { promisify } from 'node:util';
import { isEngineError } from '../errors/engine-error.js';
import type { Digest } from '../ports/storage.js';
import type { PartialPlace } from '../registry/partial-blobs.js';
import { readRecord, recordText, writeRecord } from '../storage/record-store.js';

/** What a server said about the version of its blob (RFC 9110, section 13.1.5). */
export interface Validator {
  readonly url: string;
  readonly etag: string;
}

interface PartialRecord {
  readonly digest: Digest;
  readonly sizeBytes: number;
  readonly bootId: string;
  readonly syncedBytes: number;
  readonly validator: Validator | null;
}

/** What a power cut can cost of a download. */
const SYNC_INTERVAL_BYTES = 128 << 20;
const READ_BYTES = 256 << 10;
const sync = promisify(fdatasync);

export class PartialFile {
  readonly #place: PartialPlace;
  readonly #blob: { readonly digest: Digest; readonly sizeBytes: number };
  #fd: number | undefined;
  #bytes: number;
  #syncedBytes: number;
  #validator: Validator | undefined;
  #syncing: Promise<void> = Promise.resolve();
  #writing: Promise<void> = Promise.resolve();
  /** Bytes that an earlier transfer left. */
  readonly resumedBytes: number;

  private constructor(place: PartialPlace, blob: { readonly digest: Digest; readonly sizeBytes: number }, fd: number, record: PartialRecord | undefined) {
    this.#place = place;
    this.#blob = blob;
    this.#fd = fd;
    const isSameRun = record?.bootId === place.bootId;
    const certain = record ? Math.min(fstatSync(fd).size, blob.sizeBytes, isSameRun ? Infinity : record.syncedBytes) : 0;
    ftruncateSync(fd, certain);
    this.#bytes = this.resumedBytes = certain;
    this.#syncedBytes = Math.min(record?.syncedBytes ?? 0, certain);
    this.#validator = record?.validator ?? undefined;
    // Not synced, as it promises nothing: a power cut takes it with the bytes that it speaks of.
    const temp = `${place.recordPath}.tmp-${randomBytes(6).toString('hex')}`;
    writeFileSync(temp, recordText(this.#record()), { mode: 0o600 });
    renameSync(temp, place.recordPath);
  }

  /** Opens what there is of the blob, or begins it. @throws the errno error of the file system. */
  static async open(place: PartialPlace, blob: { readonly digest: Digest; readonly sizeBytes: number }): Promise<PartialFile> {
    const record = await recordOf(place.recordPath);
    const isOurs = record?.digest === blob.digest && record.sizeBytes === blob.sizeBytes;
    const fd = openSync(place.path, isOurs ? 'a+' : 'w+', 0o600);
    return new PartialFile(place, blob, fd, isOurs ? record : undefined);
  }

  /** Of the server that sent the first bytes. */
  get validator(): Validator | undefined {
    return this.#validator;
  }

  set validator(validator: Validator | undefined) {
    this.#validator = validator;
  }

  /** The bytes that were left, in order. Each chunk has its memory to itself. */
  *replay(): Generator<Buffer> {
    for (let at = 0; at < this.resumedBytes && this.#fd !== undefined; ) {
      const chunk = Buffer.allocUnsafeSlow(Math.min(READ_BYTES, this.resumedBytes - at));
      const count = readSync(this.#fd, chunk, 0, chunk.length, at);
      if (count === 0) return;
      at += count;
      yield chunk.subarray(0, count);
    }
  }

  /** Keeps more bytes. A full disk ends the keeping, not the fetch: the layer itself may still fit. */
  append(chunk: Buffer): void {
    if (this.#fd === undefined) return;
    try {
      for (let at = 0; at < chunk.length; ) at += writeSync(this.#fd, chunk, at);
    } catch {
      void this.close();
      rmSync(this.#place.path, { force: true });
      return;
    }
    this.#bytes += chunk.length;
    if (this.#bytes - this.#syncedBytes >= SYNC_INTERVAL_BYTES) this.#checkpoint(this.#fd);
  }

  /** Nothing is written any more when this resolves. */
  async close(): Promise<void> {
    const fd = this.#fd;
    this.#fd = undefined;
    // A sync under way still needs it; it may take long and is not waited for.
    if (fd !== undefined) void this.#syncing.finally(() => closeSync(fd));
    await this.#writing;
  }

  #checkpoint(fd: number): void {
    const bytes = (this.#syncedBytes = this.#bytes);
    this.#syncing = this.#syncing
      .then(() => sync(fd))
      .then(() => {
        if (this.#fd === undefined) return;
        this.#writing = writeRecord(this.#place.recordPath, { ...this.#record(), syncedBytes: bytes }).catch(() => undefined);
      })
      .catch(() => undefined); // then a power cut costs more
  }

  #record(): PartialRecord {
    return { ...this.#blob, bootId: this.#place.bootId, syncedBytes: this.#syncedBytes, validator: this.#validator ?? null };
  }
}

async function recordOf(path: string): Promise<PartialRecord | undefined> {
  try {
    return (await readRecord(path)) as PartialRecord | undefined;
  } catch (error) {
    if (isEngineError(error, 'data-loss')) return undefined;
    throw error;
  }
}
