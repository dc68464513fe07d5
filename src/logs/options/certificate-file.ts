/** Reads a file that an option names: certificates or a key. A pipe or a device there would block the whole daemon. */
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';

/** The certificates of all known authorities take a quarter of it. */
const MAX_BYTES = 1 << 20;

/** Synchronous: it is small. @throws Error whose message says why it cannot be read. */
export function readCertificates(path: string): Buffer {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOCTTY);
  try {
    const stat = fstatSync(fd);
    if (!stat.isFile()) throw new Error(`${path} is not a regular file`);
    if (stat.size > MAX_BYTES) throw new Error(`${path} is larger than ${MAX_BYTES} bytes`);
    const bytes = Buffer.alloc(stat.size);
    return bytes.subarray(0, readSync(fd, bytes, 0, bytes.length, 0));
  } finally {
    closeSync(fd);
  }
}
