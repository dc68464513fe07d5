/** Worker task: makes what a container needs in its root file system before it starts, if the image lacks it. */
import { lchownSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import type { Owner } from '../../ports/id-maps.js';
import { fsPath, toBytePath } from '../byte-path.js';
import { copyAttributes, copyTimes } from '../copy-attributes.js';
import { MergedView } from '../layers/merged-view.js';

export interface InitLayerInput {
  /** An empty directory. */
  readonly diffDir: string;
  /** Difference directories of the image, the topmost first. */
  readonly lowerDirs: readonly string[];
  /** Owner of what the image lacks. */
  readonly owner: Owner;
}

/**
 * Mount points of every container. Where an image has a link or a file instead, containers get a directory: runtimes
 * may follow a link to the host before they are in the container (CVE-2026-41579).
 */
const DIRECTORIES = ['dev', 'dev/pts', 'dev/shm', 'proc', 'sys'];
/** Mount points, the mark by which programs know that they are in a container, and the old name of the mount table. */
const FILES = ['.dockerenv', 'dev/console', 'etc/hostname', 'etc/hosts', 'etc/resolv.conf'];
const LINKS: Readonly<Record<string, string>> = { 'etc/mtab': '/proc/mounts' };

/**
 * Fills the layer between an image and its containers, so that nothing of this counts as a container's own change. A
 * directory of the image that gets something is there with the image's attributes.
 */
export function fillInitLayer({ diffDir, lowerDirs, owner: { uid, gid } }: InitLayerInput): void {
  const [root, view] = [toBytePath(diffDir), new MergedView(lowerDirs.map(toBytePath))];
  /** Whether each directory can be given something; those copied from the image have their times set last. */
  const directories = new Map<string, boolean>([['', true]]);
  const restore: (() => void)[] = [];
  const own = (at: string | Buffer): void => {
    if (uid !== 0 || gid !== 0) lchownSync(at, uid, gid);
  };
  own(fsPath(root));
  const directory = (path: string, isMountPoint = false): boolean => {
    const known = directories.get(path);
    if (known !== undefined) return known;
    const found = view.find(path);
    const isInTheWay = found !== undefined && found.parts === undefined;
    const usable = directory(parentOf(path)) && (!isInTheWay || isMountPoint);
    directories.set(path, usable);
    if (!usable) return false;
    const at = `${root}/${path}`;
    mkdirSync(fsPath(at), { mode: 0o755 });
    if (!found || isInTheWay) {
      own(fsPath(at));
      return true;
    }
    copyAttributes(found.at, found.stat, at);
    restore.push(() => copyTimes(found.stat, at));
    return true;
  };
  const add = (path: string, make: (at: string | Buffer) => void): void => {
    if (view.find(path) || !directory(parentOf(path))) return;
    const at = fsPath(`${root}/${path}`);
    make(at);
    own(at);
  };
  for (const path of DIRECTORIES) if (!view.find(path)?.parts) directory(path, true);
  for (const path of FILES) add(path, (at) => writeFileSync(at, '', { mode: 0o755, flag: 'wx' }));
  for (const [path, target] of Object.entries(LINKS)) add(path, (at) => symlinkSync(target, at));
  for (const setTimes of restore.toReversed()) setTimes();
}

function parentOf(path: string): string {
  return path.slice(0, Math.max(path.lastIndexOf('/'), 0));
}
