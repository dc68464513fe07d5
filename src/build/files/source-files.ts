/**
 * Finds the sources of COPY and ADD in a tree that a client or an image has made. Links lead nowhere outside the tree.
 * Synchronous, for worker threads. Paths are byte strings.
 */
import { closeSync, constants, openSync, readdirSync } from 'node:fs';
import { invalid, notFound } from '../../errors/engine-error.js';
import { fsPath, toBytePath, toText } from '../../storage/byte-path.js';
import { type FoundPath, findPath, openResolved } from '../../storage/container-path.js';
import { closeFd } from '../../sys/files/fd.js';
import { compileGlob, type Glob } from '../../text/glob.js';
import { WorkBudget } from '../../text/work-budget.js';
import { cleanPath, joinPath } from './paths.js';

/** Tells of a path below the root of a tree, relative and without links, whether it is left out. */
export interface LeftOut {
  (path: string, isDirectory: boolean): boolean;
  /** Tells of a directory that is left out, and made for something in it, whether it gets its time all the same. */
  readonly keepsTime?: (path: string) => boolean;
}

export interface SourceFile extends FoundPath {
  /** Absolute below the root, without links in its directories. */
  readonly path: string;
  /** A pattern has found it. */
  readonly isMatch: boolean;
  /** The part of the path that `--parents` keeps. */
  readonly below: string;
}

/** A directory on the way to a source that `--parents` keeps. */
export interface DirectoryBetween {
  /** Absolute below the root of the source. */
  readonly from: string;
  readonly below: string;
}

/** Returns the directories between what `--parents` keeps of a source and the source itself, the outermost first. */
export function directoriesBetween({ path, below }: Pick<SourceFile, 'path' | 'below'>): DirectoryBetween[] {
  const base = path.slice(0, path.length - below.length);
  const names = partsOf(below).slice(0, -1);
  return names.map((_, at) => {
    const kept = names.slice(0, at + 1).join('/');
    return { from: `${base}${kept}`, below: kept };
  });
}

const WILDCARDS = /[*?[\\]/;

export function hasWildcards(pattern: string): boolean {
  return WILDCARDS.test(pattern);
}

/**
 * Gives the files that a source names, in the order of their names. A pattern may name none. The caller closes each
 * before it asks for the next one, of which there may be many thousands. A link that is named itself is followed.
 * @param parents has `**` match any directories, and what is before `/./` left out of what `--parents` keeps.
 * @throws EngineError not-found, code NO_SOURCE, for a file that is not there, or is left out.
 */
export function* findSources(rootFd: number, source: string, leftOut: LeftOut, parents = false): Generator<SourceFile> {
  const pattern = cleanPath(toBytePath(source));
  const pivot = source.indexOf('/./');
  const skipped = pivot < 0 ? 0 : partsOf(cleanPath(source.slice(0, pivot))).length;
  const below = (path: string): string => partsOf(path).slice(skipped).join('/');
  if (!hasWildcards(pattern)) {
    const found = openSource(rootFd, pattern, source, leftOut);
    yield { ...found, isMatch: false, below: below(found.path) };
    return;
  }
  const found = new Set<string>();
  collect(rootFd, '/', partsOf(pattern), { found, parents, seen: new Set() });
  for (const path of found) {
    if (leftOut(path.slice(1), false) && leftOut(path.slice(1), true)) continue;
    yield { ...openSource(rootFd, path, path, () => false), isMatch: true, below: below(path) };
  }
}

const partsOf = (path: string): string[] => path.split('/').filter(Boolean);

function openSource(
  rootFd: number,
  path: string,
  written: string,
  leftOut: LeftOut,
): Omit<SourceFile, 'isMatch' | 'below'> {
  try {
    const { fd, path: resolved } = openResolved(rootFd, path);
    closeFd(fd);
    const found = findPath(rootFd, resolved === '/' ? '/.' : resolved);
    // The name is the one that was written, also when it was a link.
    const name = path.slice(path.lastIndexOf('/') + 1);
    const source = { at: found.at, stat: found.stat, close: () => found.close(), path: resolved, name };
    if (resolved === '/' || !leftOut(path.slice(1), found.stat.isDirectory())) return source;
    found.close();
  } catch (error) {
    if (!isMissing(error)) throw error;
    if (error.code === 'ELOOP') throw invalid('too many links', { code: 'NO_SOURCE', cause: error });
  }
  throw notFound(`"${cleanPath(written)}": not found`, { code: 'NO_SOURCE', details: { source: written } });
}

function isMissing(error: unknown): error is { readonly code: string } {
  const { code } = error as { readonly code?: string };
  return code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP';
}

interface Collected {
  readonly found: Set<string>;
  readonly parents: boolean;
  /** Directories that were looked into, with the number of pieces: several `**` lead to one by many ways. */
  readonly seen: Set<string>;
}

function collect(rootFd: number, directory: string, pieces: readonly string[], to: Collected): void {
  const [piece, ...rest] = pieces;
  if (piece === undefined) {
    to.found.add(directory);
    return;
  }
  const step = `${pieces.length} ${directory}`;
  if (to.seen.has(step)) return;
  to.seen.add(step);
  const isAnyDepth = to.parents && piece === '**';
  if (isAnyDepth && rest.length > 0) collect(rootFd, directory, rest, to);
  for (const { name, isDirectory } of entriesIn(rootFd, directory, piece)) {
    const path = joinPath(directory, name);
    if (rest.length === 0) to.found.add(path);
    else if (!isAnyDepth) collect(rootFd, path, rest, to);
    else if (isDirectory) collect(rootFd, path, pieces, to);
  }
}

interface Entry {
  readonly name: string;
  /** It is none for a link. */
  readonly isDirectory: boolean;
}

function entriesIn(rootFd: number, directory: string, piece: string): readonly Entry[] {
  const matches: Glob | undefined = hasWildcards(piece)
    ? compileGlob(toText(piece), new WorkBudget('pattern'))
    : undefined;
  let fd: number;
  try {
    const opened = openResolved(rootFd, directory);
    try {
      fd = openSync(`/proc/self/fd/${opened.fd}`, constants.O_RDONLY | constants.O_DIRECTORY);
    } finally {
      closeFd(opened.fd);
    }
  } catch (error) {
    if (isMissing(error)) return [];
    throw error;
  }
  try {
    return readdirSync(fsPath(`/proc/self/fd/${fd}`), { encoding: 'latin1', withFileTypes: true })
      .filter(({ name }) => (matches ? matches(toText(name)) : name === piece))
      .map((entry) => ({ name: entry.name, isDirectory: entry.isDirectory() }))
      .sort((a, b) => (a.name < b.name ? -1 : 1));
  } finally {
    closeSync(fd);
  }
}
