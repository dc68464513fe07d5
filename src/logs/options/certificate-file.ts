/** Reads a file that an option names: certificates or a key. */
import { constants } from 'node:fs';
import { open, type FileHandle } from 'node:fs/promises';
import { O_PATH } from '../../sys/files/open-in-root.js';

/** The certificates of all known authorities take a quarter of it. */
const MAX_BYTES = 1 << 20;

/**
 * Reads it beside the main thread, which a dead file server would hold up. What is there is looked at before it is
 * opened: a pipe would wait for a writer, and opening a device has effects.
 * @throws Error whose message says why it cannot be read.
 */
export async function readCertificates(path: string): Promise<Buffer> {
  const place = await open(path, O_PATH);
  try {
    const stat = await place.stat();
    if (!stat.isFile()) throw new Error(`${path} is not a regular file`);
    if (stat.size > MAX_BYTES) throw new Error(`${path} is larger than ${MAX_BYTES} bytes`);
    return await readStart(await open(`/proc/self/fd/${place.fd}`, constants.O_RDONLY), stat.size);
  } finally {
    await place.close();
  }
}

async function readStart(file: FileHandle, size: number): Promise<Buffer> {
  try {
    const { buffer, bytesRead } = await file.read(Buffer.alloc(size), 0, size, 0);
    return buffer.subarray(0, bytesRead);
  } finally {
    await file.close();
  }
}
