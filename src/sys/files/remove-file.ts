/**
 * Removes files by the call that does it. `rm` of Node looks at what is there twice before: two turns of the
 * thread pool more for each file, of which every container and exec leaves several.
 */
import { lstatSync, unlinkSync } from 'node:fs';
import { unlink } from 'node:fs/promises';

/** Removes a file; nothing happens when there is none. @throws the errno error of the file system. */
export async function removeFile(path: string): Promise<void> {
  await unlink(path).catch((error: NodeJS.ErrnoException) => {
    if (error.code !== 'ENOENT') throw error;
  });
}

/** Does the same at once, for files that are in memory or mostly are not there. */
export function removeFileNow(path: string): void {
  if (isThere(path)) unlinkSync(path);
}

/** Tells whether anything has this name, also a link to nothing. */
export function isThere(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined;
}
