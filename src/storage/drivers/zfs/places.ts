/** Names in the directory of the store, and in those of layers and containers, besides those of the store. */
import { readlinkSync } from 'node:fs';
import { join } from 'node:path';

/**
 * A link whose text is the name of a dataset. In the directory of the store it is the full name of the dataset that has
 * all others below it; in the directory of a layer or a container it is the last part of the name. A link and not a
 * file: it is part of the metadata of its directory, so a crash cannot leave it empty.
 */
export const DATASET_LINK = 'dataset';

/** The snapshot of a layer that the layers and containers above it are clones of. */
export const SNAPSHOT = 'layer';

/** The property of the dataset that has all others below it. Its value is the last part of its own first name. */
export const STORE_PROPERTY = 'engined:store';

/**
 * Another property of that dataset: number and path of the directory of the store. A copy of a data root has neither,
 * and must not use the datasets of the first one.
 */
export const ROOT_PROPERTY = 'engined:root';

/** The property that each dataset of a layer or a container has itself. Its value is that of the store. */
export const OWN_PROPERTY = 'engined:dataset';

/** Returns the text of the link in a directory; undefined when there is none. */
export function datasetIn(directory: string): string | undefined {
  try {
    return readlinkSync(join(directory, DATASET_LINK));
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'EINVAL') return undefined;
    throw error;
  }
}
