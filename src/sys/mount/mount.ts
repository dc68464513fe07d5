/** Mounts and unmounts (mount(2), umount2(2)) away from the main thread, because both may touch the disk. */
import { readFile } from 'node:fs/promises';
import { libc } from '../ffi/libc.js';

const mount = libc.async<[source: string, target: string, type: string, flags: number, data: string]>(
  'mount',
  'int mount(const char *source, const char *target, const char *type, unsigned long flags, const char *data)',
);
const mountSync = libc.checked<[source: string, target: string, type: string, flags: number, data: string]>(
  'mount',
  'int mount(const char *source, const char *target, const char *type, unsigned long flags, const char *data)',
);
const umount = libc.async<[target: string, flags: number]>('umount', 'int umount2(const char *target, int flags)');

// linux/mount.h
const MS_BIND = 0x1000;
const MS_READ_ONLY_REMOUNT = 0x21;
const MNT_DETACH = 2;
const UMOUNT_NOFOLLOW = 8;

/** The options of a mount are handed over in one page, with a NUL at their end. */
export const MAX_MOUNT_OPTIONS_BYTES = 4095;

/** Mounts a file system. @throws EngineError code EINVAL, ENODEV, EPERM, ENOENT, EBUSY. */
export async function mountFileSystem(
  source: string,
  target: string,
  type: string,
  options: string,
  flags = 0,
): Promise<void> {
  await mount(source, target, type, flags, options);
}

/** As `mountFileSystem`, on the calling thread: for mounts that may wait for others, in a worker. */
export function mountNow(source: string, target: string, type: string, flags: number, data: string): void {
  mountSync(source, target, type, flags, data);
}

/** Makes a mount read-only, while others of the same file system stay as they are. @throws EngineError code EINVAL. */
export async function makeMountReadOnly(target: string): Promise<void> {
  await mount('none', target, 'none', MS_BIND | MS_READ_ONLY_REMOUNT, '');
}

/** Shows a directory in another place too, read-only there. @throws EngineError as `mountFileSystem`. */
export async function bindReadOnly(directory: string, target: string): Promise<void> {
  await mount(directory, target, 'none', MS_BIND, '');
  try {
    await makeMountReadOnly(target);
  } catch (error) {
    await detachMount(target);
    throw error;
  }
}

/**
 * Takes the topmost mount at `target` out of the tree; the kernel frees it when nothing uses it any more. Returns false
 * when nothing was mounted there.
 * @throws EngineError code EPERM, EBUSY.
 */
export async function detachMount(target: string): Promise<boolean> {
  try {
    await umount(target, MNT_DETACH | UMOUNT_NOFOLLOW);
    return true;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    if (code === 'EINVAL' || code === 'ENOENT') return false;
    throw error;
  }
}

/**
 * Returns the mount points of this mount namespace below a directory, as /proc/self/mountinfo lists them (outer before
 * inner).
 */
export async function mountPointsBelow(directory: string): Promise<string[]> {
  const text = await readFile('/proc/self/mountinfo', 'utf8');
  const prefix = `${directory}/`;
  return text
    .split('\n')
    .map((line) => unescapeField(line.split(' ', 5)[4] ?? ''))
    .filter((point) => point.startsWith(prefix));
}

/** Decodes a field of proc(5): space, tab, newline and backslash are written as three octal digits. */
export function unescapeField(field: string): string {
  return field.replaceAll(/\\([0-7]{3})/g, (_, digits: string) => String.fromCharCode(Number.parseInt(digits, 8)));
}
