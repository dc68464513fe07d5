/**
 * Mounts an overlay whose lower directories show their files as those of other users. The file system itself cannot do
 * that, but each lower directory may be in a mount that does (Linux 5.19). Everything here acts on the calling thread
 * and must run in a worker, as in mount-view.ts.
 */
import { constants } from 'node:fs';
import { closeFd } from '../files/fd.js';
import { O_PATH } from '../files/open-in-root.js';
import { attachTree, cloneTree, mapIds } from './mount-tree.js';
import { mountNow } from './mount.js';
import { inOwnMountNamespace, open } from './own-namespace.js';

export interface MappedOverlayInput {
  /** The directory that all others are below. */
  readonly root: string;
  /** Paths below `root`, the topmost first. */
  readonly lower: readonly string[];
  /** A directory below `root` that a mount may hide meanwhile, from this thread alone. */
  readonly place: string;
  /** The path below `root`, one name, from which the names of the lower directories are shortest. */
  readonly base: string;
  /** Paths below `root` of what takes the changes, as the users on this host own it. Default: it is read-only. */
  readonly upper?: { readonly diff: string; readonly work: string };
  /** The other options of the mount, as in mount(2), with a comma before each. */
  readonly options: string;
  readonly usernsFd: number;
  /** Where it is mounted. */
  readonly at: string;
}

/** @throws EngineError code EINVAL when kernel or file system cannot map ids; others as mount(2). */
export function mountMappedOverlay(input: MappedOverlayInput): void {
  const { root, lower, upper, place, base, options, usernsFd, at } = input;
  const tree = inOwnMountNamespace(() => {
    const mapped = cloneTree(root, false);
    // Descriptors that were opened elsewhere would be of mounts that this namespace does not have.
    const opened: number[] = [];
    const names = (paths: readonly string[], below: string): string => {
      const fd = open(`${below}/${base}`, O_PATH | constants.O_DIRECTORY);
      opened.push(fd);
      const name = `/proc/self/fd/${fd}`;
      return paths
        .map((path) => (path.startsWith(`${base}/`) ? name + path.slice(base.length) : `${name}/../${path}`))
        .join(':');
    };
    try {
      mapIds(mapped, usernsFd, true);
      // The kernel wants it attached before 6.15. Nobody else sees this namespace, so nothing is left by a crash.
      attachTree(mapped, place);
      const changes = upper ? `,upperdir=${names([upper.diff], root)},workdir=${names([upper.work], root)}` : '';
      mountNow('overlay', at, 'overlay', 0, `lowerdir=${names(lower, place)}${changes}${options}`);
      return cloneTree(at, false);
    } finally {
      for (const fd of [...opened, mapped]) closeFd(fd);
    }
  });
  try {
    attachTree(tree, at);
  } finally {
    closeFd(tree);
  }
}
