/** Drivers that keep an image as one whole tree, which containers are snapshots of. */
import { basename } from 'node:path';

/** The name of the tree in the directory of a layer, with all that is below it, or of a container. */
export const TREE = 'tree';

export interface Origin {
  /** The tree that a new one begins as. Undefined: an empty one. */
  readonly image: string | undefined;
  /** Directories with what has changed since then, the oldest first. */
  readonly differences: readonly string[];
}

/** Returns how the tree of a container is made. @param below as `createWritable` is given it, the topmost first. */
export function originOf(below: readonly string[]): Origin {
  const image = below.find((path) => basename(path) === TREE);
  return { image, differences: below.filter((path) => path !== image).toReversed() };
}
