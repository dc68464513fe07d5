/** Names in the directory of a layer or a container, besides those of the store. */

/** The subvolume with all files of the layer and what is below it, or those of the container. */
export const TREE = 'tree';

/** A link whose text is the number of bytes that the subvolume of a container may refer to. */
export const LIMIT = 'limit';
