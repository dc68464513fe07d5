/**
 * Finds the data of a daemon that remaps users: `<data-root>/<uid>.<gid>`, named after the host's id of the containers'
 * root.
 */
import { join } from 'node:path';
import type { IdMaps } from '../ports/id-maps.js';
import { checkPassage, letPass } from '../sys/users/id-access.js';
import { rootOwner } from '../sys/users/id-maps.js';
import { makeDirectories } from '../sys/files/make-directories.js';

/**
 * Returns the data root for these maps, and lets the root user of containers pass through it; without maps it is
 * `dataRoot` itself.
 * @throws EngineError invalid when that user cannot pass through a directory above it.
 */
export async function dataRootFor(dataRoot: string, idMaps: IdMaps | undefined): Promise<string> {
  if (!idMaps) return dataRoot;
  const path = remappedDataRoot(dataRoot, idMaps);
  await makeDirectories(path, { mode: 0o710 });
  for (const directory of [dataRoot, path]) await letPass(directory, rootOwner(idMaps));
  await checkPassage(path, rootOwner(idMaps));
  return path;
}

/** Returns the path of the data root for these maps, whether it exists or not. */
export function remappedDataRoot(dataRoot: string, idMaps: IdMaps): string {
  const { uid, gid } = rootOwner(idMaps);
  return join(dataRoot, `${uid}.${gid}`);
}
