/**
 * Keeps the bytes of a blob on disk while it is fetched, so that they outlive the fetch. Nothing is synced, because
 * that would hold up the layer: after a power cut there is what the kernel had written by then. In the end the digest
 * decides.
 */
import {
  closeSync,
  fstatSync,
  ftruncateSync,
  openSync,
  readSync,
  renameSync,
  rmSync,
  writeFileSync,
  writeSync,
} from 'node:fs';
import { isEngineError } from '../errors/engine-error.js';
import type { Digest } from '../ports/storage.js';
import type { PartialPlace } from '../registry/partial-blobs.js';
import { readRecord, recordText } from '../storage/record-store.js';
import { temporaryPath } from '../sys/files/durable-file.js';
import { SpaceAhead } from '../sys/files/space-ahead.js';

/** A server identifies the version of its blob so (RFC 9110, section 13.1.5). */
export interface Validator {
  readonly url: string;
  readonly etag: string;
}

interface PartialRecord {
  readonly digest: Digest;
  readonly sizeBytes: number;
  readonly validator: Validator | null;
}

const READ_BYTES = 256 << 10;

export class PartialFile {
  readonly #place: PartialPlace;
  readonly #blob: { readonly digest: Digest; readonly sizeBytes: number };
  #fd: number | undefined;
  #validator: Validator | undefined;
  /** Bytes that an earlier transfer left. */
  readonly resumedBytes: number;
  readonly #space: SpaceAhead;
  #bytes: number;

  private constructor(
    place: PartialPlace,
    blob: { readonly digest: Digest; readonly sizeBytes: number },
    fd: number,
    record: PartialRecord | undefined,
  ) {
    this.#place = place;
    this.#blob = { digest: blob.digest, sizeBytes: blob.sizeBytes };
    this.#fd = fd;
    this.resumedBytes = record ? Math.min(fstatSync(fd).size, blob.sizeBytes) : 0;
    ftruncateSync(fd, this.resumedBytes);
    this.#space = new SpaceAhead(fd, blob.sizeBytes);
    this.#bytes = this.resumedBytes;
    this.#validator = record?.validator ?? undefined;
    this.#note();
  }

  /** Opens what there is of the blob, or begins it. @throws the errno error of the file system. */
  static async open(
    place: PartialPlace,
    blob: { readonly digest: Digest; readonly sizeBytes: number },
  ): Promise<PartialFile> {
    const record = await recordOf(place.recordPath);
    const isOurs = record?.digest === blob.digest && record.sizeBytes === blob.sizeBytes;
    // The file of before may have become a blob of the supervisor under another name: it is left as it is.
    if (!isOurs) rmSync(place.path, { force: true });
    const fd = openSync(place.path, 'a+', 0o600);
    try {
      return new PartialFile(place, blob, fd, isOurs ? record : undefined);
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  }

  /** Validator of the server that sent the first bytes. */
  get validator(): Validator | undefined {
    return this.#validator;
  }

  set validator(validator: Validator | undefined) {
    if (validator?.url === this.#validator?.url && validator?.etag === this.#validator?.etag) return;
    this.#validator = validator;
    this.#note();
  }

  /** Returns the bytes that were left, in order. Each chunk has its own memory. */
  *replay(): Generator<Buffer> {
    for (let at = 0; at < this.resumedBytes && this.#fd !== undefined;) {
      const chunk = Buffer.allocUnsafeSlow(Math.min(READ_BYTES, this.resumedBytes - at));
      const count = readSync(this.#fd, chunk, 0, chunk.length, at);
      if (count === 0) return;
      at += count;
      yield chunk.subarray(0, count);
    }
  }

  /** Reads bytes that are kept into a buffer, from a position, and returns how many; 0: there are none yet. */
  read(buffer: Buffer, position: number): number {
    return this.#fd === undefined ? 0 : readSync(this.#fd, buffer, 0, buffer.length, position);
  }

  /** False once the disk was full. */
  get isKept(): boolean {
    return this.#fd !== undefined;
  }

  /** Keeps more bytes. A full disk ends the keeping, not the fetch: the layer itself may still fit. */
  append(chunk: Buffer): void {
    if (this.#fd === undefined) return;
    try {
      this.#space.willWrite(this.#bytes, this.#bytes + chunk.length);
      for (let at = 0; at < chunk.length;) at += writeSync(this.#fd, chunk, at);
      this.#bytes += chunk.length;
    } catch {
      this.close();
      rmSync(this.#place.path, { force: true });
    }
  }

  close(): void {
    if (this.#fd === undefined) return;
    this.#space.giveBack();
    closeSync(this.#fd);
    this.#fd = undefined;
  }

  #note(): void {
    const record: PartialRecord = { ...this.#blob, validator: this.#validator ?? null };
    const temp = temporaryPath(this.#place.recordPath);
    writeFileSync(temp, recordText(record), { mode: 0o600 });
    renameSync(temp, this.#place.recordPath);
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
