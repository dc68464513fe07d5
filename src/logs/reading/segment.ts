/** One file of a log. It is open for reading as long as a holder needs it, whatever happens to its name. */
import { close, read } from 'node:fs';
import { promisify } from 'node:util';

const readFd = promisify(read);
const closeFd = promisify(close);

export class Segment {
  /** The file that continues this one after a rotation. A holder of a segment also holds its successors. */
  #next: Segment | undefined;
  #holders = 1;

  /**
   * @param size bytes of whole records in it; grows while it is written.
   * @param inode its number, which tells it from its successors whatever they are called.
   * @param isSealed true when nothing will be added any more.
   */
  constructor(
    readonly fd: number,
    public size: number,
    public isSealed: boolean,
    readonly inode: number = 0,
  ) {}

  get next(): Segment | undefined {
    return this.#next;
  }

  /** Marks the file as complete; `next` continues it. */
  seal(next?: Segment): void {
    this.isSealed = true;
    this.#next = next?.acquire();
  }

  /** True while there are holders. */
  get isHeld(): boolean {
    return this.#holders > 0;
  }

  /** Releases all files between this one, which is sealed, and a later one. Returns their size. */
  skipTo(later: Segment): number {
    let bytes = 0;
    for (let segment = this.#next; segment && segment !== later; segment = segment.#next) bytes += segment.size;
    const skipped = this.#next;
    this.#next = later.acquire();
    skipped?.release();
    return bytes;
  }

  /** Adds a holder, which must call `release` once. */
  acquire(): this {
    this.#holders++;
    return this;
  }

  release(): void {
    if (--this.#holders > 0) return;
    // A failure may be ignored: nobody is left to be told, and nobody wants the data any more.
    closeFd(this.fd).catch(() => undefined);
    this.#next?.release();
  }

  /** Reads up to `length` bytes at `position` to the start of `into`. Returns how many there were. */
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
