/** Worker task: writes a layer to a file, as a blob of an image that leaves this engine. */
import { createHash, type Hash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { Readable, Transform, type TransformCallback } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import * as zlib from 'node:zlib';
import { dataLoss, notImplemented } from '../../errors/engine-error.js';
import type { Digest } from '../../ports/storage.js';
import { type AssembleInput, assembleTar } from '../../storage/tar/assemble.js';
import { deflaterFor } from '../../workers/deflate-part.js';
import { gzipInParts } from '../../workers/gzip-parts.js';
import { clampTimes } from './clamp-times.js';

export type Compression = 'gzip' | 'zstd' | 'uncompressed';

export interface CompressLayerInput extends AssembleInput {
  readonly diffId: Digest;
  readonly compression: Compression;
  /** undefined: the usual one. */
  readonly level: number | undefined;
  /** Later times of files become this one, in seconds since 1970. */
  readonly epoch: number | undefined;
  /** The file that is made. */
  readonly path: string;
}

export interface LayerFile {
  /** Names the blob. */
  readonly digest: Digest;
  readonly sizeBytes: number;
  /** Names the tar in it, which is another one when times have been changed. */
  readonly diffId: Digest;
}

/** @throws EngineError data-loss for a layer that was changed on disk. */
export async function compressLayer(input: CompressLayerInput): Promise<LayerFile> {
  const { diffId, compression, level, epoch, path } = input;
  const original = createHash('sha256');
  const whole = counted(assembleTar(input), original);
  const final = createHash('sha256');
  const tar = epoch === undefined ? whole : counted(clampTimes(whole, epoch), final);
  const blob = new BlobCounter();
  const chunks = compression === 'gzip' ? gzipInParts(tar, deflaterFor(level && Math.min(level, 9))) : tar;
  const source = Readable.from(chunks, { highWaterMark: 2 });
  const target = createWriteStream(path, { flags: 'wx', mode: 0o600 });
  await (compression === 'zstd' ? pipeline(source, zstd(level), blob, target) : pipeline(source, blob, target));
  if (digestOf(original) !== diffId) throw dataLoss(`layer ${diffId} was changed on disk`, { code: 'LAYER_DAMAGED' });
  return { digest: blob.digest, sizeBytes: blob.sizeBytes, diffId: epoch === undefined ? diffId : digestOf(final) };
}

type ZstdMaker = (options?: { readonly params: Readonly<Record<number, number>> }) => Transform;

function zstd(level: number | undefined): Transform {
  // Node has it since 22.15.
  const maker = Reflect.get(zlib, 'createZstdCompress') as ZstdMaker | undefined;
  if (maker === undefined)
    throw notImplemented('compression with zstd needs an engine that runs on Node.js 22.15 or later');
  const parameter = Reflect.get(zlib.constants, 'ZSTD_c_compressionLevel') as number;
  return maker(level === undefined ? undefined : { params: { [parameter]: level } });
}

/** Hashes the chunks that pass. */
export function* counted(chunks: Iterable<Buffer>, hash: Hash): Generator<Buffer> {
  for (const chunk of chunks) {
    hash.update(chunk);
    yield chunk;
  }
}

export function digestOf(hash: Hash): Digest {
  return `sha256:${hash.digest('hex')}`;
}

/** Counts and hashes the bytes that pass. */
export class BlobCounter extends Transform {
  readonly #hash = createHash('sha256');
  sizeBytes = 0;

  get digest(): Digest {
    return digestOf(this.#hash);
  }

  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback): void {
    this.#hash.update(chunk);
    this.sizeBytes += chunk.length;
    done(null, chunk);
  }
}
