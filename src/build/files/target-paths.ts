/**
 * Finds places below the root file system of an image that is being made, whose links are followed as a process of the
 * image would follow them. Synchronous, for worker threads. Paths are byte strings.
 */
import { constants, readlinkSync } from 'node:fs';
import { fsPath } from '../../storage/byte-path.js';
import { findPath, type FoundPath, openResolved } from '../../storage/container-path.js';
import { closeFd } from '../../sys/files/fd.js';
import { O_PATH, openInRoot } from '../../sys/files/open-in-root.js';
import { tooManyLinks } from './copy-errors.js';
import { cleanPath, joinPath, parentPath } from './paths.js';

/** At most so many links are followed while a place is looked for, as in the kernel. */
const MAX_LINKS = 40;
const DIRECTORY = O_PATH | constants.O_DIRECTORY;

/**
 * Returns where a path leads. What is not there yet is made at the place to which dangling links point.
 * @throws EngineError invalid for links that lead to each other.
 */
export function resolveTarget(rootFd: number, path: string, links = 0): string {
  try {
    const { fd, path: resolved } = openResolved(rootFd, path);
    closeFd(fd);
    return resolved;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ELOOP') throw tooManyLinks();
    if (path === '/' || (code !== 'ENOENT' && code !== 'ENOTDIR')) return path;
  }
  const above = resolveTarget(rootFd, parentPath(path), links);
  const place = joinPath(above, path.slice(path.lastIndexOf('/') + 1));
  const target = linkAt(rootFd, place);
  if (target === undefined) return place;
  if (links === MAX_LINKS) throw tooManyLinks();
  return resolveTarget(rootFd, cleanPath(target.startsWith('/') ? target : `${above}/${target}`), links + 1);
}

export function isDirectoryAt(rootFd: number, path: string): boolean {
  try {
    closeFd(openInRoot(rootFd, fsPath(path), DIRECTORY));
    return true;
  } catch {
    return false;
  }
}

/** Tells whether something is there that is no directory. */
export function isFileAt(rootFd: number, path: string): boolean {
  return look(rootFd, path, ({ stat }) => !stat.isDirectory()) ?? false;
}

function linkAt(rootFd: number, path: string): string | undefined {
  return look(rootFd, path, ({ at, stat }) => (stat.isSymbolicLink() ? readlinkSync(fsPath(at), 'latin1') : undefined));
}

/** Returns undefined when nothing is there. */
function look<T>(rootFd: number, path: string, use: (found: FoundPath) => T): T | undefined {
  try {
    const found = findPath(rootFd, path);
    try {
      return use(found);
    } finally {
      found.close();
    }
  } catch {
    // The directory is not there either.
    return undefined;
  }
}
