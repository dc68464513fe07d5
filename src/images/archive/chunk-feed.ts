/** Sends an archive to the worker that reads it, in chunks, as fast as the worker takes them. */
import type { ArchiveOrder } from '../../workers/read-archive.js';

/** At most so many chunks are on their way to the worker at once. */
const WINDOW = 8;

export class ChunkFeed {
  #credit = WINDOW;
  #isOver = false;
  #wake = (): void => undefined;

  constructor(private readonly order: (order: ArchiveOrder, transfer?: ArrayBuffer[]) => void) {}

  /** True when the worker takes no more chunks. */
  get isOver(): boolean {
    return this.#isOver;
  }

  /** Notes that the worker has taken a chunk. */
  taken(): void {
    this.#credit++;
    this.#wake();
  }

  /** Notes that the worker takes no more chunks. */
  end(): void {
    this.#isOver = true;
    this.#wake();
  }

  /** Sends all chunks. Resolves when the last one is sent, or when the worker takes no more. */
  async sendAll(source: AsyncIterable<Buffer>): Promise<void> {
    for await (const chunk of source) {
      // A chunk with memory of its own is moved; one that is part of a pool must be copied.
      const isWhole = chunk.byteLength === chunk.buffer.byteLength && chunk.buffer instanceof ArrayBuffer;
      const bytes = isWhole ? chunk : Uint8Array.from(chunk);
      this.order({ type: 'chunk', chunk: bytes }, [bytes.buffer as ArrayBuffer]);
      this.#credit--;
      while (this.#credit <= 0 && !this.#isOver) await new Promise<void>((resolve) => (this.#wake = resolve));
      if (this.#isOver) return;
    }
    this.order({ type: 'chunk', chunk: null });
  }
}
