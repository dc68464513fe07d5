/** Worker task: makes a read-only layer of a container's changes. */
import type { IdMaps } from '../../ports/id-maps.js';
import type { LayerContent } from '../../ports/storage.js';
import { diffTar } from '../tar/diff.js';
import { type UnpackTarget, unpackTar } from './unpack-tar.js';

export interface CommitDiffInput extends UnpackTarget {
  readonly upperDir: string;
  /** Maps the owners of the container's files to this host. */
  readonly upperMaps: IdMaps | undefined;
}

export function commitDiff({ upperDir, upperMaps, ...target }: CommitDiffInput): LayerContent {
  return unpackTar(diffTar(upperDir, upperMaps), target);
}
