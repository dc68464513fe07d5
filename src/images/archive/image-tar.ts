/**
 * The tar around the files of saved images. tar-stream writes it: names are ours, short and plain, and nobody has the
 * digest of its headers and padding, as they have of the layers inside.
 */
import type { Readable } from 'node:stream';
import { pack, type Pack } from 'tar-stream';

/** tar-stream computes times with 32 bits; others go into an extended header. */
const MAX_SECONDS = 2 ** 31 - 1;

type Header = Parameters<Pack['entry']>[0];

interface FileFacts {
  readonly sizeBytes: number;
  /** Since the epoch. */
  readonly mtimeSeconds: number;
}

/** Entries are added one after the other; each is taken as fast as the chunks are read, so that nothing is kept. */
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

  /** Adds a file. Rejects when its content fails or has another size, and when the archive is read no more. */
  file(name: string, { sizeBytes, mtimeSeconds }: FileFacts, content: Buffer | Readable): Promise<void> {
    return this.#add({ name, type: 'file', mode: 0o644, size: sizeBytes, ...timeOf(mtimeSeconds) }, content);
  }

  /** Ends the archive after its last entry. */
  end(): void {
    this.#pack.finalize();
  }

  /** Gives the archive up where it is; an archive that has ended stays as it is. */
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

/** Pipes until either of them ends; then the other one does, too. */
function pour(content: Readable, entry: ReturnType<Pack['entry']>): void {
  content.once('error', (error) => entry.destroy(error));
  // Whoever waits for the entry is told of its error.
  entry.on('error', () => undefined);
  entry.once('close', () => content.destroy());
  content.pipe(entry);
}

function timeOf(seconds: number): { readonly mtime: Date; readonly pax?: Readonly<Record<string, string>> } {
  return seconds >= 0 && seconds <= MAX_SECONDS
    ? { mtime: new Date(seconds * 1000) }
    : { mtime: new Date(0), pax: { mtime: String(seconds) } };
}
