/**
 * Rebuilds the exact tar of a layer from its difference directory and its tar-split file. Synchronous, for worker
 * threads.
 */
import { closeSync, constants, fstatSync, openSync, readFileSync, readSync } from 'node:fs';
import { fsPath, toBytePath, toText } from '../byte-path.js';
import { displacedDir } from './split-format.js';
import { blockBytes, checkMagic, readBlock, splitDamaged, type SplitRecord } from './split-reader.js';

const CHUNK_BYTES = 256 * 1024;
const OPEN = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** Returns the memory of the next chunk. */
type ChunkMemory = () => Buffer;

const newChunk: ChunkMemory = () => Buffer.allocUnsafeSlow(CHUNK_BYTES);

/** The same memory for every chunk, for those who are done with one when they ask for the next. */
export function sharedChunk(): ChunkMemory {
  const chunk = newChunk();
  return () => chunk;
}

export interface AssembleInput {
  readonly diffDir: string;
  readonly tarSplitPath: string;
}

/**
 * Returns the tar's bytes in order, in chunks of 256 KiB except the last. Descriptors are closed when the iteration
 * ends, however it ends.
 * @param memory of the chunks: each has its own, if it is left out.
 * @throws EngineError data-loss when files or tar-split data are missing or damaged. If content was changed without a
 * change of its length, only the digest shows it, which the caller must check.
 */
export function* assembleTar({ diffDir, tarSplitPath }: AssembleInput, memory = newChunk): Generator<Buffer> {
  const contents = new Contents(diffDir, tarSplitPath);
  let chunk = memory();
  let used = 0;
  let tarBytes = 0;
  let isComplete = false;
  for (const record of splitRecords(tarSplitPath)) {
    if (record.type === 'end') {
      isComplete = record.tarBytes === tarBytes;
      continue;
    }
    const source = record.type === 'raw' ? rawSource(record.bytes) : contents.open(record.path, record.sizeBytes);
    try {
      for (let left = source.sizeBytes; left > 0;) {
        const count = source.read(chunk, used, Math.min(left, CHUNK_BYTES - used));
        left -= count;
        used += count;
        tarBytes += count;
        if (used < CHUNK_BYTES) continue;
        yield chunk;
        chunk = memory();
        used = 0;
      }
    } finally {
      source.close();
    }
  }
  if (!isComplete) throw splitDamaged('it ends too early');
  if (used > 0) yield chunk.subarray(0, used);
}

interface Source {
  readonly sizeBytes: number;
  /** Puts at least one byte and at most `length` into the chunk. */
  read(chunk: Buffer, at: number, length: number): number;
  close(): void;
}

function rawSource(bytes: Buffer): Source {
  let taken = 0;
  return {
    sizeBytes: bytes.length,
    read(chunk, at, length) {
      const count = bytes.copy(chunk, at, taken, taken + length);
      taken += count;
      return count;
    },
    close: () => undefined,
  };
}

function* splitRecords(path: string): Generator<SplitRecord> {
  const fd = openSplit(path);
  try {
    let at = checkMagic(readRange(fd, 0, 8));
    const { size } = fstatSync(fd);
    while (at < size) {
      const { plain, deflated } = blockBytes(readRange(fd, at, 8));
      yield* readBlock(readRange(fd, at + 8, deflated), plain);
      at += 8 + deflated;
    }
  } finally {
    closeSync(fd);
  }
}

/**
 * Returns the length of the tar, from the last block of the file; the blocks before are skipped. @throws EngineError
 * data-loss.
 */
export function tarBytesOf(path: string): number {
  const fd = openSplit(path);
  try {
    const { size } = fstatSync(fd);
    let at = checkMagic(readRange(fd, 0, 8));
    for (let lengths = blockBytes(readRange(fd, at, 8)); ; lengths = blockBytes(readRange(fd, at, 8))) {
      const end = at + 8 + lengths.deflated;
      if (end >= size) {
        for (const record of readBlock(readRange(fd, at + 8, lengths.deflated), lengths.plain))
          if (record.type === 'end') return record.tarBytes;
        throw splitDamaged('it ends too early');
      }
      at = end;
    }
  } finally {
    closeSync(fd);
  }
}

function openSplit(path: string): number {
  try {
    return openSync(path, OPEN);
  } catch (error) {
    throw (error as NodeJS.ErrnoException).code === 'ENOENT' ? splitDamaged('missing') : error;
  }
}

function readRange(fd: number, position: number, length: number): Buffer {
  const buffer = Buffer.allocUnsafe(length);
  for (let at = 0; at < length;) {
    const count = readSync(fd, buffer, at, length - at, position + at);
    if (count === 0) throw splitDamaged('it ends too early');
    at += count;
  }
  return buffer;
}

/** Reads contents of files of the layer, even if another entry took their name. */
class Contents {
  readonly #diffDir: string;
  readonly #displacedDir: string;
  /** Numbers of displaced files by path, the next one first. */
  readonly #displaced: ReadonlyMap<string, number[]>;

  constructor(diffDir: string, tarSplitPath: string) {
    this.#diffDir = toBytePath(diffDir);
    this.#displacedDir = toBytePath(displacedDir(tarSplitPath));
    this.#displaced = readDisplaced(tarSplitPath);
  }

  open(path: string, sizeBytes: number): Source {
    const number = this.#displaced.get(path)?.shift();
    const fd = openContent(number === undefined ? `${this.#diffDir}/${path}` : `${this.#displacedDir}/${number}`, path);
    return {
      sizeBytes,
      read(chunk, at, length) {
        const count = readSync(fd, chunk, at, length, null);
        if (count === 0) throw splitDamaged(`file ${JSON.stringify(toText(path))} is too short`);
        return count;
      },
      close: () => closeSync(fd),
    };
  }
}

function openContent(at: string, path: string): number {
  try {
    return openSync(fsPath(at), OPEN);
  } catch (error) {
    throw splitDamaged(
      `file ${JSON.stringify(toText(path))} cannot be read: ${(error as NodeJS.ErrnoException).code ?? 'unknown'}`,
    );
  }
}

function readDisplaced(tarSplitPath: string): Map<string, number[]> {
  try {
    return new Map(
      JSON.parse(readFileSync(`${displacedDir(tarSplitPath)}/index.json`, 'utf8')) as [string, number[]][],
    );
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return new Map();
    throw splitDamaged('displaced files have no index');
  }
}
