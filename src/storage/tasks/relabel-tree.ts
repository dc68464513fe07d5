/**
 * Gives a file or a whole tree another SELinux label. Containers may change the tree at the same time, so each
 * directory is held open and no link is followed: nothing outside the tree gets a label.
 */
import { closeSync, constants, openSync, readdirSync, readlinkSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { invalid } from '../../errors/engine-error.js';
import { O_PATH } from '../../sys/files/open-in-root.js';
import { getXattr, setXattr } from '../../sys/files/xattr.js';

export interface RelabelInput {
  /** A path without links. */
  readonly path: string;
  readonly label: string;
}

export const SELINUX_ATTRIBUTE = 'security.selinux';
const { O_RDONLY, O_DIRECTORY, O_NOFOLLOW } = constants;
/** Each level of a tree takes a descriptor while it is walked. */
const MAX_DEPTH = 1000;

/** The system would not work any more with other labels here. */
const SYSTEM_PLACES = new Set(
  (
    '/ /bin /boot /dev /etc /etc/passwd /etc/pki /etc/shadow /home /lib /lib64 /media /opt /proc /root /run /sbin ' +
    '/srv /sys /system /tmp /usr /usr/bin /usr/lib /usr/lib64 /usr/sbin /usr/share /var /var/lib /var/log /var/run'
  ).split(' '),
);

/**
 * Sets the label of what is at the path, and of everything below it. File systems without labels are left as they are.
 * @throws EngineError invalid `SELinux relabeling of /etc is not allowed`, and for a tree that is too deep.
 */
export function relabelTree({ path, label }: RelabelInput): void {
  if (SYSTEM_PLACES.has(path)) throw refused(path);
  const parent = openSync(dirname(path), O_PATH | O_DIRECTORY);
  try {
    // A container may have put a link into the path since it was resolved.
    const found = join(readlinkSync(`/proc/self/fd/${parent}`), basename(path));
    if (found !== path) throw refused(found);
    relabelEntry(parent, Buffer.from(basename(path)), Buffer.from(`${label}\0`), 0);
  } finally {
    closeSync(parent);
  }
}

function refused(path: string): Error {
  return invalid(`SELinux relabeling of ${path} is not allowed`);
}

/** Sets the label of an entry of an open directory, and of what is below it. An entry that is gone is passed over. */
function relabelEntry(parent: number, name: Buffer, value: Buffer, depth: number): void {
  if (depth > MAX_DEPTH)
    throw invalid(`SELinux relabeling of a tree with more than ${MAX_DEPTH} levels is not allowed`);
  const path = Buffer.concat([Buffer.from(`/proc/self/fd/${parent}/`), name]);
  if (!unless(GONE, () => setLabel(path, value))) return;
  let fd = -1;
  if (!unless(NO_DIRECTORY, () => (fd = openSync(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW)))) return;
  try {
    const names = readdirSync(`/proc/self/fd/${fd}`, { encoding: 'buffer' });
    for (const below of names) relabelEntry(fd, below, value, depth + 1);
  } finally {
    closeSync(fd);
  }
}

const GONE = ['ENOENT'];
const NO_DIRECTORY = ['ENOENT', 'ENOTDIR', 'ELOOP'];
/** The file system keeps no labels, or this part of it only those that the kernel gives. */
const NO_LABELS = ['ENOTSUP', 'EOPNOTSUPP'];

/** Returns false when the step fails with one of these codes. */
function unless(codes: readonly string[], step: () => void): boolean {
  try {
    step();
    return true;
  } catch (error) {
    if (codes.includes((error as NodeJS.ErrnoException).code ?? '')) return false;
    throw error;
  }
}

/** A file that has the label already is not written to: it may be on a file system that is read-only. */
function setLabel(path: Buffer, value: Buffer): void {
  if (getXattr(path, SELINUX_ATTRIBUTE)?.equals(value)) return;
  unless(NO_LABELS, () => setXattr(path, SELINUX_ATTRIBUTE, value));
}
