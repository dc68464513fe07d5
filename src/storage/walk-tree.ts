/**
 * Walks a directory tree that somebody else, a container say, may be changing. Every directory is opened relative to
 * its parent's descriptor and without following links, so the walk cannot be led out of the tree. Synchronous, for
 * worker threads.
 */
import { closeSync, constants, openSync, readdirSync, type BigIntStats } from 'node:fs';
import { internal } from '../errors/engine-error.js';
import { fsPath, toText } from './byte-path.js';
import { statOf } from './stat-of.js';

export interface WalkedEntry {
  /** Byte string below the root. */
  readonly path: string;
  /** Byte string by which the system finds the entry, valid until the walk goes on. Links in it are not followed. */
  readonly at: string;
  readonly stat: BigIntStats;
}

const SHOWN_BYTES = 100;
const OPEN_DIRECTORY = constants.O_RDONLY | constants.O_DIRECTORY | constants.O_NOFOLLOW;

interface Level {
  readonly fd: number;
  readonly prefix: string;
  /** Names still to be visited, the next one last. */
  readonly names: string[];
}

export interface WalkOptions {
  /** Tells whether a directory below the root is entered. Default: all are. */
  readonly enters?: (stat: BigIntStats) => boolean;
  /** The content of directories whose own path is as long as paths may be ends the walk, or is left out. */
  readonly tooDeep?: 'refused' | 'left';
}

/**
 * Programs reach nothing by a longer path, and a container that makes directories in each other without end must not
 * take all descriptors of the daemon, nor its memory.
 */
const MAX_PATH_BYTES = 4096;

/**
 * Returns everything below `root` (a byte string) but not the root: directories before what is in them, names in the
 * order of their bytes. Entries that vanish during the walk are left out. One descriptor is open per level.
 * @throws EngineError code ENAMETOOLONG for a directory that is too deep.
 */
export function* walkTree(
  root: string,
  { enters = () => true, tooDeep = 'refused' }: WalkOptions = {},
): Generator<WalkedEntry> {
  const levels: Level[] = [];
  try {
    levels.push(openLevel(root, ''));
    for (let level = levels.at(-1); level; level = levels.at(-1)) {
      const name = level.names.pop();
      if (name === undefined) {
        levels.pop();
        closeSync(level.fd);
        continue;
      }
      const at = `/proc/self/fd/${level.fd}/${name}`;
      const stat = statOf(at);
      if (!stat) continue;
      const path = level.prefix + name;
      yield { path, at, stat };
      if (!stat.isDirectory() || !enters(stat)) continue;
      if (path.length >= MAX_PATH_BYTES) {
        if (tooDeep === 'left') continue;
        throw internal(`file name too long: ${toText(path.slice(0, SHOWN_BYTES))}…`, { code: 'ENAMETOOLONG' });
      }
      const below = tryOpen(at, `${path}/`);
      if (below) levels.push(below);
    }
  } finally {
    for (const { fd } of levels) closeSync(fd);
  }
}

/**
 * Returns the same of a tree that nobody else knows, and so nobody changes: entries are found by their plain paths,
 * which takes the system half as long.
 */
export function* walkOwnTree(root: string): Generator<WalkedEntry> {
  const namesIn = (at: string): string[] => readdirSync(fsPath(at), 'latin1').sort().reverse();
  const levels = [{ prefix: '', names: namesIn(root) }];
  for (let level = levels.at(-1); level; level = levels.at(-1)) {
    const name = level.names.pop();
    if (name === undefined) {
      levels.pop();
      continue;
    }
    const path = level.prefix + name;
    const at = `${root}/${path}`;
    const stat = statOf(at);
    if (!stat) continue;
    yield { path, at, stat };
    if (stat.isDirectory()) levels.push({ prefix: `${path}/`, names: namesIn(at) });
  }
}

function openLevel(at: string, prefix: string): Level {
  const fd = openSync(fsPath(at), OPEN_DIRECTORY);
  try {
    // Sorting UTF-16 code units of byte strings is sorting bytes.
    return { fd, prefix, names: readdirSync(`/proc/self/fd/${fd}`, 'latin1').sort().reverse() };
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** Opens a directory; undefined when it was removed or replaced meanwhile. */
function tryOpen(at: string, prefix: string): Level | undefined {
  try {
    return openLevel(at, prefix);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'ENOENT' || code === 'ENOTDIR' || code === 'ELOOP') return undefined;
    throw error;
  }
}
