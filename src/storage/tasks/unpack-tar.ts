/** Unpacks a tar that is made here into a layer, without storing the tar. */
import { createHash } from 'node:crypto';
import type { LayerContent, StagedLayer } from '../../ports/storage.js';
import { LayerExtractor } from '../tar/layer-extractor.js';

/** Where a tar goes. */
export type UnpackTarget = Pick<StagedLayer, 'diffDir' | 'tarSplitPath' | 'idMaps'>;

/** Hashes and unpacks the chunks in one pass, into `diffDir`, an empty directory. */
export function unpackTar(chunks: Iterable<Buffer>, target: UnpackTarget): LayerContent {
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
