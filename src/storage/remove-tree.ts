/**
 * Deletes a tree, however deep a container has made it: no path of the kernel leads to what is more than 4096 bytes
 * below. Such directories are moved up and deleted from there. Synchronous, for worker threads.
 */
import { randomBytes } from 'node:crypto';
import { readdirSync, renameSync, rmdirSync, unlinkSync } from 'node:fs';
import { fsPath } from './byte-path.js';

/** Directories further below are moved up: the paths in them stay far from the limit, and the calls of one another. */
const MOST_BYTES = 1024;
const MOST_LEVELS = 256;

/** Deletes what is at a path (a byte string) and all below it. Links are not followed. Idempotent. */
export function removeTree(root: string): void {
  const deep: string[] = [];
  const empty = (at: string, level: number): void => {
    for (const entry of readdirSync(fsPath(at), { encoding: 'latin1', withFileTypes: true })) {
      const child = `${at}/${entry.name}`;
      if (!entry.isDirectory()) unlessGone(() => unlinkSync(fsPath(child)));
      else if (level < MOST_LEVELS && child.length - root.length <= MOST_BYTES) unlessGone(() => remove(child, level));
      else unlessGone(() => moveUp(child));
    }
  };
  const moveUp = (at: string): void => {
    const place = `${root}/${randomBytes(12).toString('hex')}`;
    renameSync(fsPath(at), fsPath(place));
    deep.push(place);
  };
  const remove = (at: string, level: number): void => {
    empty(at, level + 1);
    rmdirSync(fsPath(at));
  };
  unlessGone(() => {
    try {
      unlinkSync(fsPath(root));
      return;
    } catch (error) {
      // Linux says that it is a directory.
      if (!['EISDIR', 'EPERM'].includes((error as NodeJS.ErrnoException).code ?? '')) throw error;
    }
    empty(root, 0);
    for (let at = deep.pop(); at !== undefined; at = deep.pop()) {
      const place = at;
      unlessGone(() => remove(place, 0));
    }
    rmdirSync(fsPath(root));
  });
}

function unlessGone(work: () => void): void {
  try {
    work();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}
