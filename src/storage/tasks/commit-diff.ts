/** Worker task: makes a read-only layer of a container's changes. */
import { createHash } from 'node:crypto';
import type { Digest } from '../../ports/storage.js';
import { diffTar } from '../tar/diff.js';
import { type ExtractResult, LayerExtractor } from '../tar/layer-extractor.js';

export interface CommitDiffInput {
  readonly upperDir: string;
  /** An empty directory that receives the copy, and the file for what rebuilds the tar. */
  readonly diffDir: string;
  readonly tarSplitPath: string;
}

/** In one pass: the tar is made, hashed and unpacked into the copy without being stored. */
export function commitDiff({ upperDir, diffDir, tarSplitPath }: CommitDiffInput): Pick<ExtractResult, 'sizeBytes' | 'implicitDirs' | 'danglingLinks' | 'whiteouts'> & { readonly diffId: Digest } {
  const hash = createHash('sha256');
  const extractor = new LayerExtractor({ diffDir, tarSplitPath });
  try {
    for (const chunk of diffTar(upperDir)) {
      hash.update(chunk);
      extractor.write(chunk);
    }
    const { sizeBytes, implicitDirs, danglingLinks, whiteouts } = extractor.finish();
    return { diffId: `sha256:${hash.digest('hex')}`, sizeBytes, implicitDirs, danglingLinks, whiteouts };
  } finally {
    extractor.abort();
  }
}
