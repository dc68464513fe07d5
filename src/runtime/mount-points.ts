/** Checks what an image has at the places where every container has the kernel's file systems. */
import { lstat } from 'node:fs/promises';
import { join } from 'node:path';
import { invalid } from '../errors/engine-error.js';

const MOUNT_POINTS = ['dev', 'proc', 'sys'];

/**
 * Refuses a root filesystem in which one of the places is a link or a file. Runtimes set up devices below `rootfs/dev`
 * while they still see the host's files, so runc before 1.3.6 removes and makes files in the directory of the host to
 * which a link leads (CVE-2026-41579). A place that does not exist is made by the runtime.
 * @throws EngineError invalid that names the place.
 */
export async function checkMountPoints(rootfs: string): Promise<void> {
  for (const name of MOUNT_POINTS) {
    const stats = await lstat(join(rootfs, name)).catch((error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return undefined;
      throw error;
    });
    if (stats && !stats.isDirectory())
      throw invalid(`/${name} of the root filesystem is not a directory`, { code: 'MOUNT_POINT' });
  }
}
