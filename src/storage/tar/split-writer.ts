/** Writes a tar-split file while a tar is being unpacked. */
import { closeSync, openSync, writeSync } from 'node:fs';
import { deflateRawSync } from 'node:zlib';
import { freeBuffer } from '../../sys/process/free-buffer.js';
import { SPLIT_END, SPLIT_FILE, SPLIT_MAGIC, SPLIT_RAW } from './split-format.js';

const BLOCK_BYTES = 256 * 1024;

export class SplitWriter {
  readonly #fd: number;
  readonly #block = Buffer.allocUnsafeSlow(BLOCK_BYTES);
  readonly #lengths = Buffer.alloc(8);
  #used = 0;
  /** The place of the length of the RAW record that is being extended; -1: none is open. */
  #rawAt = -1;
  #closed = false;

  /**
   * Creates the file, which must not exist. It is not safe against a crash, because the whole layer is discarded then.
   */
  constructor(path: string) {
    this.#fd = openSync(path, 'wx', 0o600);
    writeSync(this.#fd, SPLIT_MAGIC);
  }

  raw(source: Buffer, start: number, end: number): void {
    let at = start;
    while (at < end) {
      if (this.#rawAt < 0) {
        if (BLOCK_BYTES - this.#used < 6) this.#flush();
        this.#block[this.#used] = SPLIT_RAW;
        this.#rawAt = this.#used + 1;
        this.#used += 5;
      }
      const length = Math.min(end - at, BLOCK_BYTES - this.#used);
      source.copy(this.#block, this.#used, at, at + length);
      this.#used += length;
      at += length;
      if (this.#used === BLOCK_BYTES) this.#flush();
    }
  }

  /** Records the content of a file. `path` is a byte string below the difference. */
  file(path: string, sizeBytes: number): void {
    const length = path.length + 9;
    if (BLOCK_BYTES - this.#used < length) this.#flush();
    this.#endRaw();
    const block = this.#block;
    block[this.#used] = SPLIT_FILE;
    block.writeUInt16LE(path.length, this.#used + 1);
    block.write(path, this.#used + 3, 'latin1');
    block.writeUIntLE(sizeBytes, this.#used + 3 + path.length, 6);
    this.#used += length;
  }

  /** Completes the file. */
  end(tarBytes: number): void {
    if (BLOCK_BYTES - this.#used < 7) this.#flush();
    this.#endRaw();
    this.#block[this.#used] = SPLIT_END;
    this.#block.writeUIntLE(tarBytes, this.#used + 1, 6);
    this.#used += 7;
    this.#flush();
    this.close();
  }

  /** Closes the file as it is. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    closeSync(this.#fd);
    freeBuffer(this.#block);
  }

  #endRaw(): void {
    if (this.#rawAt < 0) return;
    this.#block.writeUInt32LE(this.#used - this.#rawAt - 4, this.#rawAt);
    this.#rawAt = -1;
  }

  #flush(): void {
    this.#endRaw();
    if (this.#used === 0) return;
    const deflated = deflateRawSync(this.#block.subarray(0, this.#used), { level: 1 });
    this.#lengths.writeUInt32LE(this.#used, 0);
    this.#lengths.writeUInt32LE(deflated.length, 4);
    writeAll(this.#fd, this.#lengths, 0, 8);
    writeAll(this.#fd, deflated, 0, deflated.length);
    this.#used = 0;
  }
}

/** Writes a range of a buffer whole, at the file's position. */
export function writeAll(fd: number, source: Buffer, start: number, end: number): void {
  let at = start;
  while (at < end) at += writeSync(fd, source, at, end - at);
}
