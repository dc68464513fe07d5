/** Reads small text files of a container's root filesystem. */
import { constants, fstat, read as readCallback } from 'node:fs';
import { open } from 'node:fs/promises';
import { promisify } from 'node:util';
import { invalid, isEngineError, messageOf } from '../errors/engine-error.js';
import { closeFd } from '../sys/files/fd.js';
import { openInRoot } from '../sys/files/open-in-root.js';

const stat = promisify(fstat);
const read = promisify(readCallback);

/** No real passwd or group file is nearly so large; a larger one is an attack on the daemon's memory. */
const LIMIT_BYTES = 16 * 1024 * 1024;

/**
 * Returns the content of a regular file below `rootfs`; symbolic links are followed only inside it. Undefined when
 * there is none.
 * @throws EngineError invalid when the file is no regular file or larger than 16 MiB.
 */
export async function readRootfsFile(rootfs: string, path: string): Promise<string | undefined> {
  const root = await open(rootfs, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    let fd: number;
    try {
      fd = openInRoot(root.fd, path);
    } catch (error) {
      if (isEngineError(error) && (error.code === 'ENOENT' || error.code === 'ENOTDIR' || error.code === 'ELOOP'))
        return undefined;
      throw invalid(`cannot read ${path} of the container: ${messageOf(error)}`, { cause: error });
    }
    try {
      return await readAll(fd, path);
    } finally {
      closeFd(fd);
    }
  } finally {
    await root.close();
  }
}

async function readAll(fd: number, path: string): Promise<string> {
  const stats = await stat(fd);
  if (!stats.isFile()) throw invalid(`cannot read ${path} of the container: not a regular file`);
  if (stats.size > LIMIT_BYTES) throw invalid(`cannot read ${path} of the container: larger than ${LIMIT_BYTES} bytes`);
  const buffer = Buffer.alloc(stats.size);
  let length = 0;
  while (length < buffer.length) {
    const { bytesRead } = await read(fd, buffer, length, buffer.length - length, length);
    if (bytesRead === 0) break;
    length += bytesRead;
  }
  return buffer.toString('utf8', 0, length);
}
