/** Makes a tar of a file or a tree. Synchronous, for worker threads. */
import type { IdMaps } from '../../ports/id-maps.js';
import { walkTree } from '../walk-tree.js';
import { EntryWriter, type TarSource } from './entry-writer.js';
import { END_OF_ARCHIVE } from './header-writer.js';

const CHUNK_BYTES = 256 * 1024;
/** Pieces of at least this size are passed on without a copy. */
const OWN_CHUNK_BYTES = 64 * 1024;

/** Returns `CHUNK_BYTES` of memory, for one chunk alone. */
export type ChunkMemory = () => Buffer;

export const newChunk: ChunkMemory = () => Buffer.allocUnsafeSlow(CHUNK_BYTES);

/**
 * Returns the chunks of the tar of one file, or of a directory with all that is in it. Names begin with `name`, a byte
 * string; `/` makes them absolute.
 */
export function archiveTar(
  source: TarSource,
  name: string,
  memory: ChunkMemory,
  idMaps: IdMaps | undefined,
): Generator<Buffer> {
  return pack(memory, (buffer) => entries(source, name, new EntryWriter(buffer, idMaps)));
}

/**
 * Returns the chunks of the tar of everything below a directory (a byte string), without an entry for the directory.
 * @param mtimeSeconds is the time of all entries; undefined: each has its own.
 */
export function contentsTar(
  directory: string,
  memory: ChunkMemory,
  idMaps: IdMaps | undefined,
  mtimeSeconds?: number,
): Generator<Buffer> {
  return pack(memory, function* (buffer) {
    const writer = new EntryWriter(buffer, idMaps);
    writer.mtimeSeconds = mtimeSeconds;
    for (const entry of walkTree(directory, { tooDeep: 'left' })) yield* writer.write(entry, entry.path);
    yield END_OF_ARCHIVE;
  });
}

function* entries(source: TarSource, name: string, writer: EntryWriter): Generator<Buffer> {
  const own = name === '/' ? '' : name;
  yield* writer.write(source, own);
  if (source.stat.isDirectory()) {
    for (const entry of walkTree(source.at, { tooDeep: 'left' })) yield* writer.write(entry, `${own}/${entry.path}`);
  }
  yield END_OF_ARCHIVE;
}

/** Joins small pieces and lets large ones pass. */
function* pack(memory: ChunkMemory, pieces: (buffer: () => Buffer) => Iterable<Buffer>): Generator<Buffer> {
  let spare: Buffer | undefined;
  let chunk = memory();
  let used = 0;
  for (const piece of pieces(() => (spare ??= memory()))) {
    if (piece.length >= OWN_CHUNK_BYTES && piece.buffer === spare?.buffer) {
      if (used > 0) {
        yield chunk.subarray(0, used);
        chunk = memory();
        used = 0;
      }
      spare = undefined;
      yield piece;
      continue;
    }
    for (let at = 0; at < piece.length;) {
      const count = piece.copy(chunk, used, at);
      at += count;
      used += count;
      if (used < CHUNK_BYTES) continue;
      yield chunk;
      chunk = memory();
      used = 0;
    }
  }
  if (used > 0) yield chunk.subarray(0, used);
}
