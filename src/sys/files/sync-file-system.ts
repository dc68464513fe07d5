/** Waits until a whole file system is on the disk. */
import { open } from 'node:fs/promises';
import { libc } from '../ffi/libc.js';

const syncfs = libc.async<[fd: number]>('syncfs', 'int syncfs(int fd)');

/**
 * Writes everything to the disk that the file system of `path` still has in memory. It waits in libuv's pool, as every
 * fsync does: a worker thread would take 30 ms of processor time to start for that.
 * @throws EngineError code EIO, ENOSPC.
 */
export async function syncFileSystem(path: string): Promise<void> {
  const file = await open(path, 'r');
  try {
    await syncfs(file.fd);
  } finally {
    await file.close();
  }
}
