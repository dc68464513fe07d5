/**
 * Carries out a difference on the whole tree that it was unpacked in, by moving its entries. Synchronous, for worker
 * threads. Paths are byte strings.
 */
import { readdirSync, renameSync, rmdirSync, unlinkSync, type BigIntStats } from 'node:fs';
import { fsPath } from '../byte-path.js';
import { copyTimes } from '../copy-attributes.js';
import { isOpaque, isWhiteout, makeTransparent } from '../layers/marks.js';
import { removeTree } from '../remove-tree.js';
import { statOf } from '../stat-of.js';
import { replaceAttributes } from './apply-difference.js';

/**
 * Moves the entries of `difference`, a directory on the same file system that nobody else knows, into `tree`, and
 * removes from it what the marks hide. The difference is gone afterwards. A directory that is not in the tree, or hides
 * the one there, is moved with all that is in it.
 */
export function moveDifference(difference: string, tree: string): void {
  const root = statOf(difference);
  const merged: { readonly path: string; readonly stat: BigIntStats }[] = root ? [{ path: '', stat: root }] : [];
  for (let next = 0; next < merged.length; next++) {
    const prefix = merged[next]?.path ?? '';
    for (const name of readdirSync(fsPath(difference + prefix), 'latin1')) {
      const path = `${prefix}/${name}`;
      const stat = statOf(difference + path);
      if (!stat) continue;
      const taken = statOf(tree + path);
      if (stat.isDirectory() && taken?.isDirectory() && !isOpaque(difference + path)) merged.push({ path, stat });
      else put(difference + path, stat, tree + path, taken);
    }
  }
  // Last, and the innermost first, because what is made in a directory changes its times.
  for (const { path, stat } of merged.toReversed()) {
    replaceAttributes(difference + path, stat, tree + path);
    rmdirSync(fsPath(difference + path));
    if (path === '') copyTimes(stat, tree);
  }
}

/** Moves an entry to a name of which nothing below is left. */
function put(from: string, stat: BigIntStats, to: string, taken: BigIntStats | undefined): void {
  if (taken?.isDirectory()) removeTree(to);
  else if (taken) unlinkSync(fsPath(to));
  if (isWhiteout(stat)) {
    unlinkSync(fsPath(from));
    return;
  }
  renameSync(fsPath(from), fsPath(to));
  if (stat.isDirectory()) clean(to);
}

/** Removes the marks from a directory that hides nothing any more, and from all in it. */
function clean(top: string): void {
  const pending = [top];
  for (let at = pending.pop(); at !== undefined; at = pending.pop()) {
    if (isOpaque(at)) makeTransparent(at);
    for (const entry of readdirSync(fsPath(at), { withFileTypes: true, encoding: 'latin1' })) {
      const inner = `${at}/${entry.name}`;
      if (entry.isDirectory()) pending.push(inner);
      else if (entry.isCharacterDevice()) removeWhiteout(at, inner);
    }
  }
}

function removeWhiteout(directory: string, at: string): void {
  const [before, stat] = [statOf(directory), statOf(at)];
  if (!before || !stat || !isWhiteout(stat)) return;
  unlinkSync(fsPath(at));
  copyTimes(before, directory);
}
