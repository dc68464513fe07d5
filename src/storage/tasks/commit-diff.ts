/** Worker task: makes a read-only layer of a container's changes. */
import { diffTar } from '../tar/diff.js';
import { type UnpackedTar, unpackTar } from './unpack-tar.js';

export interface CommitDiffInput {
  readonly upperDir: string;
  /** An empty directory that receives the copy, and the file for what rebuilds the tar. */
  readonly diffDir: string;
  readonly tarSplitPath: string;
}

export function commitDiff({ upperDir, ...target }: CommitDiffInput): UnpackedTar {
  return unpackTar(diffTar(upperDir), target);
}
