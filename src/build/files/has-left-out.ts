/** Worker task: tells whether a directory has files that an ignore file leaves out, so it cannot be shown as it is. */
import { closeSync, constants, fstatSync, openSync } from 'node:fs';
import { toBytePath } from '../../storage/byte-path.js';
import { openResolved } from '../../storage/container-path.js';
import { walkTree } from '../../storage/walk-tree.js';
import { closeFd } from '../../sys/files/fd.js';
import { leftOutBy } from './left-out.js';
import { cleanPath, parentPath } from './paths.js';

export interface HasLeftOutInput {
  readonly root: string;
  /** The place in it that is wanted. */
  readonly source: string;
  readonly ignore: readonly string[];
}

export function hasLeftOut({ root, source, ignore }: HasLeftOutInput): boolean {
  const leftOut = leftOutBy(ignore);
  const rootFd = openSync(root, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    const { fd, path: top } = openResolved(rootFd, toBytePath(cleanPath(source)));
    // Directories that are left out, until something in them is not: then they belong to it.
    const directories = new Set<string>();
    try {
      if (!fstatSync(fd).isDirectory()) return leftOut(top.slice(1), false);
      for (const { path, stat } of walkTree(`/proc/self/fd/${fd}/.`)) {
        const whole = top === '/' ? `/${path}` : `${top}/${path}`;
        const isOut = leftOut(whole.slice(1), stat.isDirectory());
        if (isOut && !stat.isDirectory()) return true;
        if (isOut) directories.add(whole);
        else for (let above = parentPath(whole); directories.delete(above);) above = parentPath(above);
      }
    } finally {
      closeFd(fd);
    }
    return directories.size > 0;
  } finally {
    closeSync(rootFd);
  }
}
