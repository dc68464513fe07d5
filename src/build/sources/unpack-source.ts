/** Task: unpacks a file that was fetched, if it is an archive. */
import { closeSync, constants, openSync } from 'node:fs';
import { toBytePath } from '../../storage/byte-path.js';
import { isArchive, unpackArchive } from '../files/local-archive.js';

export interface UnpackSourceInput {
  readonly path: string;
  /** An empty directory. Owners are those that the archive names. */
  readonly directory: string;
}

/** Resolves with whether it is one. @throws EngineError for one that is damaged. */
export async function unpackSource({ path, directory }: UnpackSourceInput): Promise<boolean> {
  const at = toBytePath(path);
  if (!(await isArchive(at))) return false;
  const rootFd = openSync(directory, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    await unpackArchive(at, { rootFd, directory: '/', owner: undefined, idMaps: undefined });
  } finally {
    closeSync(rootFd);
  }
  return true;
}
