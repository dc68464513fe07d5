/** Unpacks a tar that is made here into a layer, without storing the tar. */
import { createHash } from 'node:crypto';
import type { Digest, StagedLayer } from '../../ports/storage.js';
import { type ExtractResult, LayerExtractor } from '../tar/layer-extractor.js';

/** Where a tar goes. */
export type UnpackTarget = Pick<StagedLayer, 'diffDir' | 'tarSplitPath' | 'idMaps'>;

/** A staged layer needs these to be committed. */
export type UnpackedTar = Pick<ExtractResult, 'sizeBytes' | 'implicitDirs' | 'danglingLinks' | 'whiteouts'> & {
  readonly diffId: Digest;
};

/** Hashes and unpacks the chunks in one pass, into `diffDir`, an empty directory. */
export function unpackTar(chunks: Iterable<Buffer>, target: UnpackTarget): UnpackedTar {
  const hash = createHash('sha256');
  const extractor = new LayerExtractor(target);
  try {
    for (const chunk of chunks) {
      hash.update(chunk);
      extractor.write(chunk);
    }
    const { sizeBytes, implicitDirs, danglingLinks, whiteouts } = extractor.finish();
    return { diffId: `sha256:${hash.digest('hex')}`, sizeBytes, implicitDirs, danglingLinks, whiteouts };
  } finally {
    extractor.abort();
  }
}
