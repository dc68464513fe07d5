/** Names in the directory of a layer or a container, besides those of the store. */

/** A link whose text is the number of bytes that the subvolume of a container may refer to. */
export const LIMIT = 'limit';

/** A link whose text is the number of bytes that a layer has alone; absent where the tree tells. */
export const OWN = 'own';

/** A subvolume beside the topmost tree of an image, with its init layer: its containers begin as snapshots of that. */
export const START = 'start';
