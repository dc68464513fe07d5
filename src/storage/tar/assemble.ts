/** Rebuilds the exact tar of a layer from its difference directory and its tar-split file. */
import { constants } from 'node:fs';
import { open, readFile, type FileHandle } from 'node:fs/promises';
import { internal } from '../../errors/engine-error.js';
import { fsPath, toBytePath, toText } from '../byte-path.js';
import { displacedDir } from './split-format.js';
import { blockBytes, checkMagic, readBlock, splitDamaged, type SplitRecord } from './split-reader.js';

const CHUNK_BYTES = 256 * 1024;
const OPEN = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

export interface AssembleInput {
  readonly diffDir: string;
  readonly tarSplitPath: string;
}

/**
 * The tar's bytes in order, in chunks of at most 256 KiB or so. Memory is bounded, descriptors are closed when the
 * iteration ends, however it ends.
 * @throws EngineError data-loss when files or tar-split data are missing or damaged. Content that was changed without
 * a change of its length shows only in the digest, which is the caller's to check.
 */
export async function* assembleTar({ diffDir, tarSplitPath }: AssembleInput): AsyncGenerator<Buffer> {
  const files = new Contents(diffDir, tarSplitPath);
  let tarBytes = 0;
  let complete = false;
  for await (const record of splitRecords(tarSplitPath)) {
    if (record.type === 'raw') {
      tarBytes += record.bytes.length;
      yield record.bytes;
    } else if (record.type === 'file') {
      tarBytes += record.sizeBytes;
      yield* files.read(record.path, record.sizeBytes);
    } else {
      complete = record.tarBytes === tarBytes;
    }
  }
  if (!complete) throw splitDamaged('it ends too early');
}

async function* splitRecords(path: string): AsyncGenerator<SplitRecord> {
  const file = await open(path, OPEN).catch((error: unknown) => {
    throw (error as NodeJS.ErrnoException).code === 'ENOENT' ? splitDamaged('missing') : error;
  });
  try {
    let at = checkMagic(await readRange(file, 0, 8));
    const { size } = await file.stat();
    while (at < size) {
      const { plain, deflated } = blockBytes(await readRange(file, at, 8));
      yield* readBlock(await readRange(file, at + 8, deflated), plain);
      at += 8 + deflated;
    }
  } finally {
    await file.close();
  }
}

async function readRange(file: FileHandle, position: number, length: number): Promise<Buffer> {
  const buffer = Buffer.allocUnsafe(length);
  for (let at = 0; at < length; ) {
    const { bytesRead } = await file.read(buffer, at, length - at, position + at);
    if (bytesRead === 0) throw splitDamaged('it ends too early');
    at += bytesRead;
  }
  return buffer;
}

/** Contents of files of the layer, also of those whose name another entry took. */
class Contents {
  /** Numbers of displaced files by path, the next one first; undefined until a file is wanted. */
  #displaced: Map<string, number[]> | undefined;

  constructor(
    private readonly diffDir: string,
    private readonly tarSplitPath: string,
  ) {}

  async *read(path: string, sizeBytes: number): AsyncGenerator<Buffer> {
    this.#displaced ??= await this.#readDisplaced();
    const number = this.#displaced.size === 0 ? undefined : this.#displaced.get(path)?.shift();
    const at = number === undefined ? `${toBytePath(this.diffDir)}/${path}` : `${toBytePath(displacedDir(this.tarSplitPath))}/${number}`;
    const file = await open(fsPath(at) as string, OPEN).catch((error: unknown) => {
      throw splitDamaged(`file ${JSON.stringify(toText(path))} cannot be read: ${(error as NodeJS.ErrnoException).code ?? 'unknown'}`);
    });
    try {
      for (let left = sizeBytes; left > 0; ) {
        const buffer = Buffer.allocUnsafe(Math.min(left, CHUNK_BYTES));
        const { bytesRead } = await file.read(buffer, 0, buffer.length, null);
        if (bytesRead === 0) throw splitDamaged(`file ${JSON.stringify(toText(path))} is too short`);
        left -= bytesRead;
        yield bytesRead === buffer.length ? buffer : buffer.subarray(0, bytesRead);
      }
    } finally {
      await file.close();
    }
  }

  async #readDisplaced(): Promise<Map<string, number[]>> {
    try {
      const text = await readFile(`${displacedDir(this.tarSplitPath)}/index.json`, 'utf8');
      return new Map(JSON.parse(text) as [string, number[]][]);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return new Map();
      throw internal('reading displaced files of a layer', { cause: error });
    }
  }
}
