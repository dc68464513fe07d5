/**
 * Writes the tar of saved images with the library tar-stream. That is enough here, because the names are ours, short
 * and plain, and no digest covers the headers and the padding, as it does for layers.
 */
import type { Readable } from 'node:stream';
import { pack, type Pack } from 'tar-stream';

/** tar-stream computes times with 32 bits; a later time goes into an extended header. */
const MAX_SECONDS = 2 ** 31 - 1;

type Header = Parameters<Pack['entry']>[0];

interface FileFacts {
  readonly sizeBytes: number;
  /** Seconds since the epoch. */
  readonly mtimeSeconds: number;
  /** 0644 unless it is set. */
  readonly mode?: number;
}

/** Takes entries one after the other, each as fast as the chunks are read, so that nothing collects in memory. */
export class ImageTar {
  readonly #pack = pack();

  /** The bytes of the archive. Reading them fails with the error of the content that failed. */
  get chunks(): AsyncIterable<Uint8Array> {
    return this.#pack as AsyncIterable<Uint8Array>;
  }

  /** Adds a directory. */
  directory(name: string): Promise<void> {
    return this.#add({ name, type: 'directory', mode: 0o755, mtime: new Date(0) });
  }

  /** Adds a file. Rejects when its content fails or has another size, and when nobody reads the archive any more. */
  file(name: string, { sizeBytes, mtimeSeconds, mode = 0o644 }: FileFacts, content: Buffer | Readable): Promise<void> {
    return this.#add({ name, type: 'file', mode, size: sizeBytes, ...timeOf(mtimeSeconds) }, content);
  }

  /** Ends the archive after its last entry. */
  end(): void {
    this.#pack.finalize();
  }

  /** Breaks the archive off; one that has ended stays as it is. */
  destroy(error?: Error): void {
    this.#pack.destroy(error);
  }

  #add(header: Header, content?: Buffer | Readable): Promise<void> {
    return new Promise((resolve, reject) => {
      const done = (error?: Error | null): void => (error ? reject(error) : resolve());
      if (Buffer.isBuffer(content)) this.#pack.entry(header, content, done);
      else {
        const entry = this.#pack.entry(header, done);
        if (content) pour(content, entry);
      }
    });
  }
}

/** Pipes until one side ends, and then ends the other. */
function pour(content: Readable, entry: ReturnType<Pack['entry']>): void {
  content.once('error', (error) => entry.destroy(error));
  // The code that waits for the entry gets its error.
  entry.on('error', () => undefined);
  entry.once('close', () => content.destroy());
  content.pipe(entry);
}

function timeOf(seconds: number): { readonly mtime: Date; readonly pax?: Readonly<Record<string, string>> } {
  return seconds >= 0 && seconds <= MAX_SECONDS
    ? { mtime: new Date(seconds * 1000) }
    : { mtime: new Date(0), pax: { mtime: String(seconds) } };
}
