/** The bytes that a client or a registry may have written to a file system. */
import { statfs } from 'node:fs/promises';

/** So much stays free, for what the daemon itself has to write; of a small file system a part. */
const RESERVED_BYTES = 64 << 20;
const RESERVED_PART = 1 / 20;

/** Returns how many bytes may be written to the file system of a path, which must exist. */
export async function usableBytes(path: string): Promise<number> {
  const { bavail, blocks, bsize } = await statfs(path);
  return Math.max(0, bavail * bsize - Math.min(RESERVED_BYTES, blocks * bsize * RESERVED_PART));
}
