/** Finds paths of a container below the root of its view. Synchronous, for worker threads. Paths are byte strings. */
import { constants, readlinkSync, type BigIntStats } from 'node:fs';
import type { PathStat } from '../ports/archives.js';
import { closeFd } from '../sys/files/fd.js';
import { O_PATH, openInRoot } from '../sys/files/open-in-root.js';
import { fsPath, toText } from './byte-path.js';
import { statOf } from './stat-of.js';
import { withoutTrailing } from '../text/trailing.js';

/** At most so many links are followed while a dangling link is resolved, as in the kernel. */
const MAX_LINKS = 40;
const DIRECTORY = O_PATH | constants.O_DIRECTORY;

export interface FoundPath {
  /** The path by which the system finds the file until `close`. A link there is not followed. */
  readonly at: string;
  readonly stat: BigIntStats;
  /** Last component of the path. */
  readonly name: string;
  close(): void;
}

/** Finds a path. @throws EngineError or errno error with code ENOENT, ENOTDIR, ELOOP, … */
export function findPath(rootFd: number, path: string): FoundPath {
  const slash = path.lastIndexOf('/');
  const base = path.slice(slash + 1);
  const parent = openInRoot(rootFd, fsPath(path.slice(0, slash) || '/'), DIRECTORY);
  const at = `/proc/self/fd/${parent}/${base === '' ? '.' : base}`;
  try {
    const stat = statOf(at);
    if (!stat) throw Object.assign(new Error(`lstat ${toText(path)}: no such file or directory`), { code: 'ENOENT' });
    return { at, stat, name: baseName(path), close: () => closeFd(parent) };
  } catch (error) {
    closeFd(parent);
    throw error;
  }
}

/** Returns the facts that the Engine API tells about a path. */
export function statPath(rootFd: number, path: string, found: FoundPath): PathStat {
  const { stat, name, at } = found;
  return {
    name: toText(name),
    sizeBytes: Number(stat.size),
    mode: Number(stat.mode),
    mtimeNs: stat.mtimeNs,
    linkTarget: stat.isSymbolicLink() ? toText(resolveLink(rootFd, path, readlinkSync(fsPath(at), 'latin1'))) : '',
  };
}

/** Opens a path with all links followed, and returns the path without links. The caller closes the descriptor. */
export function openResolved(rootFd: number, path: string): { readonly fd: number; readonly path: string } {
  const fd = openInRoot(rootFd, fsPath(path), O_PATH);
  try {
    return { fd, path: placeOf(rootFd, fd) };
  } catch (error) {
    closeFd(fd);
    throw error;
  }
}

/** Returns where an open descriptor is, seen from the root. */
function placeOf(rootFd: number, fd: number): string {
  const root = readlinkSync(`/proc/self/fd/${rootFd}`, 'latin1');
  const place = readlinkSync(`/proc/self/fd/${fd}`, 'latin1');
  if (root === '/' || !place.startsWith(root)) return place;
  return place.slice(root.length) || '/';
}

function resolveLink(rootFd: number, path: string, target: string): string {
  let link = { path, target };
  for (let count = 0; count < MAX_LINKS; count++) {
    try {
      const { fd, path: resolved } = openResolved(rootFd, link.path);
      closeFd(fd);
      return resolved;
    } catch {
      // The link dangles: the directory of the next name is resolved, and the name is appended.
    }
    const next = joinPath(link.path.slice(0, link.path.lastIndexOf('/')), link.target);
    const further = readLink(rootFd, next);
    if (further === undefined) return placeOfMissing(rootFd, next);
    link = { path: next, target: further };
  }
  return placeOfMissing(rootFd, link.path);
}

function readLink(rootFd: number, path: string): string | undefined {
  let found: FoundPath | undefined;
  try {
    found = findPath(rootFd, path);
    return found.stat.isSymbolicLink() ? readlinkSync(fsPath(found.at), 'latin1') : undefined;
  } catch {
    return undefined;
  } finally {
    found?.close();
  }
}

function placeOfMissing(rootFd: number, path: string): string {
  const slash = path.lastIndexOf('/');
  if (slash <= 0) return path;
  try {
    const { fd, path: parent } = openResolved(rootFd, path.slice(0, slash));
    closeFd(fd);
    return joinPath(parent, path.slice(slash + 1));
  } catch {
    return path;
  }
}

function joinPath(directory: string, target: string): string {
  const kept: string[] = [];
  for (const part of (target.startsWith('/') ? target : `${directory}/${target}`).split('/')) {
    if (part === '..') kept.pop();
    else if (part !== '' && part !== '.') kept.push(part);
  }
  return `/${kept.join('/')}`;
}

/** Does the same as Go's filepath.Base. */
function baseName(path: string): string {
  const trimmed = withoutTrailing(path, '/');
  return trimmed === '' ? '/' : trimmed.slice(trimmed.lastIndexOf('/') + 1);
}
