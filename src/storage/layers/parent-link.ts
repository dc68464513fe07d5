/**
 * The layer below a container is the text of a link in its directory. A link and not a file: it is part of the
 * directory's metadata, so a crash cannot leave it empty.
 */
import { join } from 'node:path';

/** The text for a container without an image. */
export const NO_PARENT = 'none';

export const parentLink = (directory: string): string => join(directory, 'parent');
