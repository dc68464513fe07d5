/** Worker task: makes a read-only layer of a container's changes. */
import { diffTar } from '../tar/diff.js';
import { type UnpackedTar, type UnpackTarget, unpackTar } from './unpack-tar.js';

export interface CommitDiffInput extends UnpackTarget {
  readonly upperDir: string;
}

export function commitDiff({ upperDir, ...target }: CommitDiffInput): UnpackedTar {
  return unpackTar(diffTar(upperDir, target.idMaps), target);
}
