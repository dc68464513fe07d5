/**
 * The runtime makes a place for each mount where the image has none. These places are no part of what a RUN has made,
 * so they are found before it and removed after it, mostly by workers. Links are followed as the runtime follows them.
 */
import { closeSync, constants, openSync, readlinkSync, rmdirSync, unlinkSync } from 'node:fs';
import { lstat } from 'node:fs/promises';
import { fsPath, toBytePath } from '../../storage/byte-path.js';
import { copyTimes } from '../../storage/copy-attributes.js';
import { statOf } from '../../storage/stat-of.js';
import { closeFd } from '../../sys/files/fd.js';
import { O_PATH, openInRoot } from '../../sys/files/open-in-root.js';
import { joinPath, parentPath } from './paths.js';

/** At most so many links are followed, as in the kernel. */
const MAX_LINKS = 40;
const DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY;

export interface FindStubsInput {
  /** The root file system is mounted here. */
  readonly rootfs: string;
  /** Absolute paths in it. */
  readonly destinations: readonly string[];
}

/** Returns the paths that do not exist yet, as byte strings without links, each before the one above it. */
export function findStubs({ rootfs, destinations }: FindStubsInput): string[] {
  const rootFd = openSync(rootfs, DIRECTORY);
  try {
    const found = new Set(destinations.flatMap((destination) => missingPaths(rootFd, toBytePath(destination))));
    return [...found].sort((a, b) => b.length - a.length);
  } finally {
    closeSync(rootFd);
  }
}

function missingPaths(rootFd: number, destination: string): string[] {
  const rest = destination.split('/').reverse();
  let at = '/';
  let links = 0;
  for (let name = rest.pop(); name !== undefined; name = rest.pop()) {
    if (name === '' || name === '.') continue;
    if (name === '..') {
      at = parentPath(at);
      continue;
    }
    const target = look(rootFd, at, name);
    if (target === undefined) return below(at, [name, ...rest.reverse()]);
    if (target === '') at = joinPath(at, name);
    else {
      if (++links > MAX_LINKS) return [];
      if (target.startsWith('/')) at = '/';
      rest.push(...target.split('/').reverse());
    }
  }
  return [];
}

/** More names are for a worker. */
const FEW_NAMES = 16;

/**
 * Does the same without a worker where that is quick: few places, and no links on the way. Else returns undefined.
 * Nobody may change the files meanwhile.
 */
export async function findPlainStubs({ rootfs, destinations }: FindStubsInput): Promise<string[] | undefined> {
  const places = destinations.map((destination) =>
    destination.split('/').filter((name) => name !== '' && name !== '.'),
  );
  if (places.flat().length > FEW_NAMES || places.some((names) => names.includes('..'))) return undefined;
  const found = new Set<string>();
  for (const names of places) {
    let at = '/';
    let isMissing = false;
    for (const name of names) {
      at = joinPath(at, name);
      const kind: Kind = isMissing || found.has(toBytePath(at)) ? 'missing' : await kindOf(`${rootfs}${at}`);
      if (kind === 'unclear') return undefined;
      isMissing = kind === 'missing';
      if (isMissing) found.add(toBytePath(at));
    }
  }
  return [...found].sort((a, b) => b.length - a.length);
}

type Kind = 'missing' | 'there' | 'unclear';

async function kindOf(path: string): Promise<Kind> {
  try {
    return (await lstat(path)).isSymbolicLink() ? 'unclear' : 'there';
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'ENOENT' ? 'missing' : 'unclear';
  }
}

/** Returns the target of a link, '' for anything else, undefined for nothing. */
function look(rootFd: number, directory: string, name: string): string | undefined {
  return within(rootFd, directory, (parent) => {
    const at = `${parent}/${name}`;
    const stat = statOf(at);
    if (stat === undefined) return undefined;
    return stat.isSymbolicLink() ? readlinkSync(fsPath(at), 'latin1') : '';
  });
}

function below(directory: string, names: readonly string[]): string[] {
  const found: string[] = [];
  let at = directory;
  for (const name of names) {
    if (name === '' || name === '.') continue;
    // The runtime resolves this as if the directory before it were there.
    if (name === '..') return found;
    at = joinPath(at, name);
    found.push(at);
  }
  return found;
}

export interface RemoveStubsInput {
  readonly rootfs: string;
  /** As `findStubs` has found them. */
  readonly paths: readonly string[];
}

/** Removes those that are still empty. The directories above them keep their times. */
export function removeStubs({ rootfs, paths }: RemoveStubsInput): void {
  const rootFd = openSync(rootfs, DIRECTORY);
  try {
    for (const path of paths) {
      within(rootFd, parentPath(path), (parent) => removeEmpty(parent, path.slice(path.lastIndexOf('/') + 1)));
    }
  } finally {
    closeSync(rootFd);
  }
}

function removeEmpty(parent: string, name: string): void {
  const at = `${parent}/${name}`;
  const stat = statOf(at);
  const before = statOf(`${parent}/.`);
  if (stat === undefined || before === undefined) return;
  try {
    if (stat.isDirectory()) rmdirSync(fsPath(at));
    else if (stat.isFile() && stat.size === 0n) unlinkSync(fsPath(at));
    else return;
  } catch (error) {
    // The step has put something into it, which stays.
    if ((error as NodeJS.ErrnoException).code === 'ENOTEMPTY') return;
    throw error;
  }
  copyTimes(before, `${parent}/.`);
}

/** Calls `work` with a path of the directory that cannot come to mean another one; not at all when there is none. */
function within<T>(rootFd: number, directory: string, work: (parent: string) => T): T | undefined {
  let fd: number;
  try {
    fd = openInRoot(rootFd, fsPath(directory), O_PATH | constants.O_DIRECTORY);
  } catch {
    return undefined;
  }
  try {
    return work(`/proc/self/fd/${fd}`);
  } finally {
    closeFd(fd);
  }
}
