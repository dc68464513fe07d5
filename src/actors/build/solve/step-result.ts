/** The results of steps, which later steps begin with or read. */
import type { Digest } from '../../../ports/storage.js';

/** A directory on this host with files for other steps. */
export interface SourceFiles {
  readonly directory: string;
  /** Patterns of files that are not there for the build. */
  readonly ignore: readonly string[];
  /** The owners are those of this host already, as in the layers of images. */
  readonly isMapped: boolean;
  /** Where digests of the files are remembered, when the directory stays between builds. */
  readonly digests?: string | undefined;
  /** Stands for the content of what was fetched; absent: it has to be hashed. */
  readonly key?: string;
}

/** All that a step leaves. */
export interface StepResult {
  /** The topmost layer; undefined: there are no files in layers. */
  readonly layer: Digest | undefined;
  /** Files that are in no layer, such as a context. */
  readonly files: SourceFiles | undefined;
  /** Stands for the result in the keys of later steps. */
  readonly key: string;
  /** Does the same in caches that travel. */
  readonly portable: string;
  /** IDs of its records in the cache. */
  readonly records: readonly string[];
  /** ms since 1970. */
  readonly createdAt: number;
  readonly isCached: boolean;
}

/** The files of a stage without any. */
export const NO_FILES: Pick<StepResult, 'layer' | 'files'> = { layer: undefined, files: undefined };
