/** One file of a log, open for reading as long as somebody needs it, whatever happens to its name. */
import { close, read } from 'node:fs';
import { promisify } from 'node:util';

const readFd = promisify(read);
const closeFd = promisify(close);

export class Segment {
  /** The file that continues this one, once it was rotated away. Whoever holds a segment holds its successors. */
  #next: Segment | undefined;
  #holders = 1;

  /**
   * @param size bytes of whole records in it; grows while it is written.
   * @param isSealed nothing will be added.
   */
  constructor(
    readonly fd: number,
    public size: number,
    public isSealed: boolean,
  ) {}

  get next(): Segment | undefined {
    return this.#next;
  }

  /** Ends the segment. */
  seal(next?: Segment): void {
    this.isSealed = true;
    this.#next = next?.acquire();
  }

  /** True while somebody needs it. */
  get isHeld(): boolean {
    return this.#holders > 0;
  }

  /** Lets go of all files between this one, which is sealed, and a later one; returns their size. */
  skipTo(later: Segment): number {
    let bytes = 0;
    for (let segment = this.#next; segment && segment !== later; segment = segment.#next) bytes += segment.size;
    const skipped = this.#next;
    this.#next = later.acquire();
    skipped?.release();
    return bytes;
  }

  /** Every holder releases once. */
  acquire(): this {
    this.#holders++;
    return this;
  }

  release(): void {
    if (--this.#holders > 0) return;
    // Nobody is left who could be told, and nothing is lost: all was read, or nobody wants it.
    closeFd(this.fd).catch(() => undefined);
    this.#next?.release();
  }

  /** Reads up to `length` bytes at `position` into the start of `into`; returns how many there were. */
  async read(into: Buffer, length: number, position: number): Promise<number> {
    let filled = 0;
    while (filled < length) {
      const { bytesRead } = await readFd(this.fd, into, filled, length - filled, position + filled);
      if (bytesRead === 0) break;
      filled += bytesRead;
    }
    return filled;
  }
}
