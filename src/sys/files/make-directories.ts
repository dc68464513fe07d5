/** Makes directories with their parents, and reports the true reason when that fails. */
import { mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';

/**
 * Makes a directory and its missing parents. Returns the topmost directory that was made, undefined when all existed.
 * @throws the errno error of the file system. Node itself says ENOENT when the disk is full (ENOSPC).
 */
export async function makeDirectories(
  path: string,
  options: { readonly mode?: number } = {},
): Promise<string | undefined> {
  try {
    return await mkdir(path, { ...options, recursive: true });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return makeOneByOne(path, options);
    throw error;
  }
}

async function makeOneByOne(path: string, options: { readonly mode?: number }): Promise<string | undefined> {
  try {
    await mkdir(path, options);
    return path;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EEXIST') return undefined;
    if (code !== 'ENOENT' || dirname(path) === path) throw error;
  }
  const topmost = await makeOneByOne(dirname(path), options);
  await mkdir(path, options);
  return topmost ?? path;
}
