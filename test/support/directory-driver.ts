/**
 * A storage driver of plain directories: every layer and every container is a whole copy of the tree below it. It shows
 * what a driver must do at least, and that the store knows nothing of overlayfs. Slow, and it works on the main thread.
 */
import { execFileSync } from 'node:child_process';
import { linkSync, mkdirSync, readdirSync, renameSync, rmSync, type BigIntStats } from 'node:fs';
import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid } from '../../src/errors/engine-error.js';
import { fsPath, toBytePath } from '../../src/storage/byte-path.js';
import { copyAttributes, copyInode, copyTimes } from '../../src/storage/copy-attributes.js';
import type { DriverRow, StorageDriver } from '../../src/storage/drivers/driver.js';
import { DIFFERENCE } from '../../src/storage/layers/layout.js';
import { isOpaque, isWhiteout, makeWhiteout } from '../../src/storage/layers/marks.js';
import { type MergedEntry, MergedView } from '../../src/storage/layers/merged-view.js';
import { statOf } from '../../src/storage/stat-of.js';
import { walkTree } from '../../src/storage/walk-tree.js';
import { bindReadOnly } from '../../src/sys/mount/mount.js';

export const directoryDriver: DriverRow = {
  name: 'directory',
  options: [],
  ownPlaces: [],
  open: async ({ layout }): Promise<StorageDriver> => {
    const treeOf = (id: string): string => join(layout.container(id), 'tree');
    const apply = async (directory: string, [parent]: readonly string[]): Promise<void> => {
      const tree = join(directory, 'tree');
      const difference = join(directory, DIFFERENCE);
      if (parent === undefined) mkdirSync(tree);
      else copyTree(parent, tree);
      applyDifference(toBytePath(difference), toBytePath(tree));
      await rm(difference, { recursive: true });
    };
    return {
      status: [],
      recover: async () => [],
      apply,
      directories: ([top]) => (top === undefined ? [] : [join(layout.layer(top), 'tree')]),
      createWritable: async (directory, [init = '', ...below], options) => {
        const [option] = Object.keys(options);
        if (option !== undefined) throw invalid(`Unknown option ${option}`, { code: 'STORAGE_OPTION' });
        copyTree(init, join(directory, DIFFERENCE));
        await apply(directory, below);
      },
      root: treeOf,
      mount: async () => undefined,
      unmount: async () => undefined,
      mountImage: async ([tree = ''], at) => {
        await bindReadOnly(tree, at);
      },
      difference: async (id, below, scratch) => {
        mkdirSync(scratch);
        makeDifference(toBytePath(treeOf(id)), below.map(toBytePath), toBytePath(scratch));
        return scratch;
      },
      data: (directory) => ({ Tree: join(directory, 'tree') }),
      remove: async (paths) => {
        for (const path of paths) await rm(path, { recursive: true, force: true });
      },
      close: () => undefined,
    };
  },
};

function copyTree(from: string, to: string): void {
  execFileSync('cp', ['-a', '--reflink=auto', from, to]);
}

/** Moves the entries of a difference into the tree and carries out its marks. */
function applyDifference(difference: string, tree: string): void {
  const clear = (path: string): void => rmSync(fsPath(`${tree}/${path}`), { recursive: true, force: true });
  const own = statOf(difference);
  const directories = own ? [{ path: '', stat: own }] : [];
  for (const { path, at, stat } of walkTree(difference)) {
    const to = `${tree}/${path}`;
    if (!stat.isDirectory()) {
      clear(path);
      if (!isWhiteout(stat)) renameSync(fsPath(`${difference}/${path}`), fsPath(to));
      continue;
    }
    if (isOpaque(at) || !statOf(to)?.isDirectory()) {
      clear(path);
      mkdirSync(fsPath(to));
    }
    directories.push({ path, stat });
  }
  // Last, because what is made in a directory changes its times.
  for (const { path, stat } of directories.toReversed())
    copyAttributes(`${difference}/${path}`, stat, `${tree}/${path}`);
}

/** Finds out what a tree has and lacks, compared with what is below it. */
function makeDifference(tree: string, below: readonly string[], difference: string): void {
  const view = new MergedView(below);
  const links = new Map<bigint, string>();
  const made = new Map<string, BigIntStats>();
  const makeDirectory = (path: string): void => {
    const stat = made.has(path) ? undefined : statOf(`${tree}/${path}`);
    if (!stat) return;
    if (path !== '') {
      makeDirectory(parentOf(path));
      mkdirSync(fsPath(`${difference}/${path}`));
    }
    made.set(path, stat);
  };
  const hide = (directory: string, parts: readonly string[]): void => {
    for (const name of new Set(parts.flatMap((part) => readdirSync(fsPath(part), 'latin1')))) {
      const path = directory === '' ? name : `${directory}/${name}`;
      if (statOf(`${tree}/${path}`) || !view.find(path)) continue;
      makeDirectory(directory);
      makeWhiteout(`${difference}/${path}`);
      // A time that is the same whenever somebody asks.
      const stat = made.get(directory);
      if (stat) copyTimes(stat, `${difference}/${path}`);
    }
  };
  makeDirectory('');
  hide('', below);
  for (const { path, at, stat } of walkTree(tree)) {
    const lower = view.find(path);
    const first = links.get(stat.ino);
    if (!isSame(stat, lower)) {
      makeDirectory(stat.isDirectory() ? path : parentOf(path));
      if (first !== undefined) linkSync(fsPath(first), fsPath(`${difference}/${path}`));
      else if (!stat.isDirectory()) {
        copyInode(at, stat, `${difference}/${path}`);
        if (stat.nlink > 1n) links.set(stat.ino, `${difference}/${path}`);
      }
    }
    if (stat.isDirectory() && lower?.parts) hide(path, lower.parts);
  }
  for (const [path, stat] of [...made].toReversed()) copyAttributes(`${tree}/${path}`, stat, `${difference}/${path}`);
}

function isSame(stat: BigIntStats, lower: MergedEntry | undefined): boolean {
  const facts = ['mode', 'uid', 'gid', 'mtimeNs', 'rdev'] as const;
  if (!lower || (!stat.isDirectory() && stat.size !== lower.stat.size)) return false;
  return facts.every((fact) => stat[fact] === lower.stat[fact]);
}

const parentOf = (path: string): string => path.slice(0, Math.max(path.lastIndexOf('/'), 0));
