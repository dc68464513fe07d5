/** The daemon's directory for temporary files. */
import { rm } from 'node:fs/promises';
import { invalid, messageOf } from '../errors/engine-error.js';
import { makeDirectories } from './make-directories.js';

/** Makes it, without what a crash may have left in it. @throws EngineError invalid when there can be no such directory. */
export async function emptyDirectory(path: string): Promise<string> {
  try {
    await rm(path, { recursive: true, force: true });
    await makeDirectories(path, { mode: 0o700 });
    return path;
  } catch (error) {
    throw invalid(`directory of temporary files ${path}: ${messageOf(error)}`, { cause: error });
  }
}
