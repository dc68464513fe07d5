/**
 * Carries out a difference on a whole tree, for drivers whose layers are trees. Synchronous, for worker threads. Paths
 * are byte strings.
 */
import { linkSync, mkdirSync, type BigIntStats } from 'node:fs';
import { removeXattr } from '../../sys/files/xattr.js';
import { fsPath } from '../byte-path.js';
import { contentXattrs, copyAttributes, copyInode, copyPassingInode } from '../copy-attributes.js';
import { isOpaque, isWhiteout } from '../layers/marks.js';
import { removeTree } from '../remove-tree.js';
import { statOf } from '../stat-of.js';
import { walkOwnTree, walkTree } from '../walk-tree.js';

/**
 * Copies the entries of `difference` into `tree`, sharing blocks where the file system can, and removes from it what
 * the marks hide. The difference stays as it is.
 * @param passed is given for a difference that nobody else knows and that is deleted afterwards, and gets the
 * attributes of each entry.
 */
export function applyDifference(difference: string, tree: string, passed?: (stat: BigIntStats) => void): void {
  const own = statOf(difference);
  const directories: { readonly path: string; readonly stat: BigIntStats }[] = own ? [{ path: '', stat: own }] : [];
  /** The first place in the tree of files with several names, by inode. */
  const links = new Map<bigint, string>();
  /** Directories that are made here: there is nothing in them but what is made here. */
  const made = new Set<string>();
  for (const { path, at, stat } of passed ? walkOwnTree(difference) : walkTree(difference)) {
    passed?.(stat);
    const to = `${tree}/${path}`;
    const taken = made.has(path.slice(0, Math.max(path.lastIndexOf('/'), 0))) ? undefined : statOf(to);
    if (stat.isDirectory()) {
      if (taken && (!taken.isDirectory() || isOpaque(at))) removeTree(to);
      if (!taken?.isDirectory() || isOpaque(at)) {
        mkdirSync(fsPath(to), { mode: 0o700 });
        made.add(path);
      }
      directories.push({ path, stat });
      continue;
    }
    if (taken) removeTree(to);
    if (isWhiteout(stat)) continue;
    const first = links.get(stat.ino);
    if (first !== undefined) linkSync(fsPath(first), fsPath(to));
    else (passed ? copyPassingInode : copyInode)(at, stat, to);
    if (stat.nlink > 1n && first === undefined) links.set(stat.ino, to);
  }
  // Last, because what is made in a directory changes its times.
  for (const { path, stat } of directories.toReversed())
    replaceAttributes(`${difference}/${path}`, stat, `${tree}/${path}`);
}

/** Gives `to` the attributes of `from`, and no others that belong to the content of a file. */
export function replaceAttributes(from: string, stat: BigIntStats, to: string): void {
  const wanted = new Set(contentXattrs(from));
  for (const name of contentXattrs(to)) if (!wanted.has(name)) removeXattr(fsPath(to), name);
  copyAttributes(from, stat, to);
}
