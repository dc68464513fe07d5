/**
 * The files of a container as it sees them, in a mount namespace that nobody else has: root file system, volumes, binds
 * and tmpfs, but nothing of the host and none of the kernel's own file systems. Whatever path is taken below its root
 * cannot lead out, and nothing of it shows among the mounts of the host or outlives the daemon.
 *
 * Everything here acts on the calling thread and must run in a worker: it visits other namespaces and comes back
 * before it returns (man 2 setns, man 2 unshare).
 */
import { constants, closeSync, mkdirSync, openSync, statSync } from 'node:fs';
import { internal } from '../../errors/engine-error.js';
import { closeFd } from '../files/fd.js';
import { libc } from '../ffi/libc.js';
import { O_PATH, openInRoot, openNested } from '../files/open-in-root.js';
import { attachTree, attachTreeAt, cloneTree, cloneTreeOf, mapIds } from './mount-tree.js';

/** A host file or directory at a place inside the container. */
export interface ViewMount {
  readonly source: string;
  /** The way from there to what is mounted, for `openNested`. */
  readonly paths?: readonly string[];
  /** An absolute path inside the container. */
  readonly destination: string;
  readonly readOnly: boolean;
  /** It shows its files as those of the users of `ViewSource.usernsFd`. */
  readonly isMapped?: boolean;
}

export interface ViewSource {
  /** Where the root file system is mounted on the host. */
  readonly rootfs: string;
  /** For a container that does not run: what a start would mount, parents first. */
  readonly mounts: readonly ViewMount[];
  /** Descriptor of a user namespace, for mounts whose ids are mapped. */
  readonly usernsFd?: number | undefined;
  /** For a container that runs. */
  readonly running?: {
    /** An open `/proc/<pid>` of its init process, which cannot come to mean another process. */
    readonly procFd: number;
    /** Places of its mounts that belong to the view, parents first. */
    readonly destinations: readonly string[];
  };
}

export interface MountView {
  /** Descriptor of the view's root, for `openInRoot`. */
  readonly rootFd: number;
  /** Closes the root, and so the kernel frees the view. */
  close(): void;
}

// The number of pivot_root, which is old, differs between architectures.
const SYS_PIVOT_ROOT = process.arch === 'x64' ? 155 : 41;
// linux/sched.h
const CLONE_FS = 0x200;
const CLONE_NEWNS = 0x20000;
// linux/mount.h
const MS_RDONLY = 1;
const MS_REMOUNT = 32;
const MS_BIND = 4096;
const MS_REC = 16384;
const MS_PRIVATE = 1 << 18;
const MNT_DETACH = 2;

const open = libc.checked<[path: string, flags: number]>('open', 'int open(const char *path, int flags)');
const pivotRoot = libc.checked<[number: number, newRoot: string, putOld: string]>(
  'pivot_root',
  'long syscall(long number, const char *new_root, const char *put_old)',
);
const unshare = libc.checked<[flags: number]>('unshare', 'int unshare(int flags)');
const setns = libc.checked<[fd: number, type: number]>('setns', 'int setns(int fd, int nstype)');
const fchdir = libc.checked<[fd: number]>('fchdir', 'int fchdir(int fd)');
const chroot = libc.checked<[path: string]>('chroot', 'int chroot(const char *path)');
const mount = libc.checked<[source: null, target: string, type: null, flags: number, data: null]>(
  'mount',
  'int mount(const char *source, const char *target, const char *type, unsigned long flags, const void *data)',
);
const umount = libc.checked<[target: string, flags: number]>('umount', 'int umount2(const char *target, int flags)');

const CLOEXEC = 0o2000000;
const OPEN_PLACE = O_PATH | CLOEXEC;

interface Tree {
  readonly fd: number;
  readonly destination: string;
  readonly readOnly: boolean;
}

/**
 * Opens a view. @throws EngineError with the errno's name as code; ESRCH when the process of a running container has
 * ended.
 */
export function openMountView(source: ViewSource): MountView {
  const home = open('/proc/thread-self/ns/mnt', constants.O_RDONLY | CLOEXEC);
  const trees: Tree[] = [];
  let isAway = false;
  try {
    // A thread can change its namespace only when root and working directory are its own.
    unshare(CLONE_FS);
    isAway = true;
    if (source.running) cloneRunning(source.running, trees);
    else cloneStopped(source, trees);
    setns(home, CLONE_NEWNS);
    unshare(CLONE_NEWNS);
    return assemble(source.rootfs, trees, source.running === undefined);
  } finally {
    if (isAway) setns(home, CLONE_NEWNS);
    closeFd(home);
    // The root is the view's now, or is closed by what failed.
    for (const { fd } of trees.slice(1)) closeFd(fd);
  }
}

function cloneStopped({ rootfs, mounts, usernsFd }: ViewSource, trees: Tree[]): void {
  trees.push({ fd: cloneTree(rootfs, false), destination: '/', readOnly: false });
  for (const { source, paths = [], destination, readOnly, isMapped = false } of mounts) {
    const fd = named(source, () => (paths.length === 0 ? cloneTree(source, true) : cloneSubtree(source, paths)));
    trees.push({ fd, destination, readOnly });
    if (isMapped && usernsFd !== undefined) named(source, () => mapIds(fd, usernsFd));
  }
}

/** Opens a file of a process in /proc; a process that is ending has lost some of them, with various errors. */
function openOfProcess(procFd: number, name: string, flags: number): number {
  try {
    return open(`/proc/self/fd/${procFd}/${name}`, flags);
  } catch (error) {
    throw internal('the process of the container has ended', { code: 'ESRCH', cause: error });
  }
}

function cloneRunning({ procFd, destinations }: NonNullable<ViewSource['running']>, trees: Tree[]): void {
  const namespace = openOfProcess(procFd, 'ns/mnt', constants.O_RDONLY | CLOEXEC);
  try {
    const root = openOfProcess(procFd, 'root', OPEN_PLACE | constants.O_DIRECTORY);
    try {
      setns(namespace, CLONE_NEWNS);
      // The root of a container need not be the root of its namespace, which may even be the host's.
      fchdir(root);
      chroot('.');
    } finally {
      closeFd(root);
    }
  } finally {
    closeFd(namespace);
  }
  trees.push({ fd: cloneTree('/', false), destination: '/', readOnly: false });
  for (const destination of destinations) {
    try {
      trees.push({ fd: cloneTree(destination, true), destination, readOnly: false });
    } catch (error) {
      // The container has taken the mount, or what was mounted, away.
      if (!isMissing(error)) throw error;
    }
  }
}

/** Runs in the new namespace: puts the trees together and drops all else. */
function assemble(rootfs: string, trees: readonly Tree[], makePlaces: boolean): MountView {
  const root = trees[0]?.fd ?? -1;
  let namespace = -1;
  try {
    mount(null, '/', null, MS_REC | MS_PRIVATE, null);
    attachTree(root, rootfs);
    for (const tree of trees.slice(1)) attach(root, tree, makePlaces);
    namespace = open('/proc/thread-self/ns/mnt', constants.O_RDONLY | CLOEXEC);
    mount(null, rootfs, null, MS_REC | MS_PRIVATE, null);
    fchdir(root);
    pivotRoot(SYS_PIVOT_ROOT, '.', '.');
    umount('.', MNT_DETACH);
  } catch (error) {
    closeFd(root);
    if (namespace >= 0) closeFd(namespace);
    throw error;
  }
  const opened = [root, namespace];
  return {
    rootFd: root,
    close: () => {
      for (const fd of opened.splice(0)) closeFd(fd);
    },
  };
}

function attach(root: number, { fd, destination, readOnly }: Tree, makePlace: boolean): void {
  const place = makePlace
    ? mountPoint(root, destination, statSync(`/proc/self/fd/${fd}`).isDirectory())
    : findPlace(root, destination);
  // Below a file system of the kernel, which the view leaves out.
  if (place === undefined) return;
  try {
    attachTreeAt(fd, place);
  } finally {
    closeFd(place);
  }
  if (readOnly) mount(null, `/proc/self/fd/${fd}`, null, MS_REMOUNT | MS_BIND | MS_RDONLY, null);
}

function findPlace(root: number, destination: string): number | undefined {
  try {
    return openInRoot(root, destination, O_PATH);
  } catch (error) {
    if (isMissing(error)) return undefined;
    throw error;
  }
}

/** Returns the place of a mount, which is made if it is missing, as the runtime does at a start. */
function mountPoint(root: number, destination: string, isDirectory: boolean): number {
  const parts = destination.split('/').filter(Boolean);
  for (let count = 1; ; count++) {
    const path = `/${parts.slice(0, count).join('/')}`;
    const isLast = count >= parts.length;
    try {
      const place = openInRoot(root, path, isLast ? O_PATH : O_PATH | constants.O_DIRECTORY);
      if (isLast) return place;
      closeFd(place);
      continue;
    } catch (error) {
      if (!isMissing(error)) throw error;
    }
    const parent = openInRoot(root, `/${parts.slice(0, count - 1).join('/')}`, O_PATH | constants.O_DIRECTORY);
    try {
      const at = `/proc/self/fd/${parent}/${parts[count - 1] ?? ''}`;
      if (!isLast || isDirectory) mkdirSync(at, 0o755);
      else
        closeSync(
          openSync(at, constants.O_CREAT | constants.O_EXCL | constants.O_WRONLY | constants.O_NOFOLLOW, 0o644),
        );
    } finally {
      closeFd(parent);
    }
    count--;
  }
}

function cloneSubtree(source: string, paths: readonly string[]): number {
  const place = openNested(source, paths, O_PATH);
  try {
    return cloneTreeOf(place, true);
  } finally {
    closeFd(place);
  }
}

function named<T>(source: string, work: () => T): T {
  try {
    return work();
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw internal(
      isMissing(error) ? `mount source does not exist: ${source}` : `cannot mount ${source}: ${String(code)}`,
      { cause: error },
    );
  }
}

function isMissing(error: unknown): boolean {
  const { code } = error as NodeJS.ErrnoException;
  return code === 'ENOENT' || code === 'ENOTDIR';
}
