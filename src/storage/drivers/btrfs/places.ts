/** Names in the directory of a layer or a container, besides those of the store. */
import { dirname, join } from 'node:path';
import type { Origin } from '../whole-tree.js';

/** A link whose text is the number of bytes that the subvolume of a container may refer to. */
export const LIMIT = 'limit';

/** A link whose text is the number of bytes that a layer has alone; absent where the tree tells. */
export const OWN = 'own';

/** A subvolume beside the topmost tree of an image, with its init layer: its containers begin as snapshots of that. */
export const START = 'start';

/** Returns where that is; undefined for a container which has something else on its image than the init layer of it. */
export function startFor({ image, differences }: Origin): string | undefined {
  const directory = dirname(image ?? '');
  const [init, ...others] = differences;
  const isInit = init !== undefined && others.length === 0 && dirname(init) === directory;
  return image !== undefined && isInit ? join(directory, START) : undefined;
}
