/** Worker task: writes the files of a plugin to a file, as the blob of a layer that a registry takes. */
import { createHash } from 'node:crypto';
import { createWriteStream } from 'node:fs';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { BlobCounter, counted, digestOf, type LayerFile } from '../../build/outputs/compress-layer.js';
import { toBytePath } from '../../storage/byte-path.js';
import { contentsTar, newChunk } from '../../storage/tar/archive-tar.js';
import { deflaterFor } from '../../workers/deflate-part.js';
import { gzipInParts } from '../../workers/gzip-parts.js';

export interface PackRootfsInput {
  readonly rootfs: string;
  /** The file that is made. */
  readonly path: string;
}

export async function packRootfs({ rootfs, path }: PackRootfsInput): Promise<LayerFile> {
  const tar = createHash('sha256');
  const blob = new BlobCounter();
  const chunks = counted(contentsTar(toBytePath(rootfs), newChunk, undefined), tar);
  const source = Readable.from(gzipInParts(chunks, deflaterFor(undefined)), { highWaterMark: 2 });
  await pipeline(source, blob, createWriteStream(path, { flags: 'wx', mode: 0o600 }));
  return { digest: blob.digest, sizeBytes: blob.sizeBytes, diffId: digestOf(tar) };
}
