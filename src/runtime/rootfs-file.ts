/** Reads small text files of a container's root filesystem. */
import { constants } from 'node:fs';
import { open, stat } from 'node:fs/promises';
import { invalid, isEngineError, messageOf } from '../errors/engine-error.js';
import { closeFd } from '../sys/files/fd.js';
import { O_PATH, openInRoot } from '../sys/files/open-in-root.js';

/** No real passwd or group file is nearly so large; a larger one is an attack on the daemon's memory. */
const LIMIT_BYTES = 4 * 1024 * 1024;

/**
 * Returns the content of a regular file below `rootfs`; symbolic links are followed only inside it. Undefined when
 * there is none.
 * @throws EngineError invalid when the file is no regular file or larger than 4 MiB.
 */
export async function readRootfsFile(rootfs: string, path: string): Promise<Buffer | undefined> {
  const root = await open(rootfs, constants.O_RDONLY | constants.O_DIRECTORY);
  try {
    let place: number;
    try {
      // Opening a device would have effects, on the host too, so it is looked at first.
      place = openInRoot(root.fd, path, O_PATH);
    } catch (error) {
      if (isEngineError(error) && (error.code === 'ENOENT' || error.code === 'ENOTDIR' || error.code === 'ELOOP'))
        return undefined;
      throw invalid(`cannot read ${path} of the container: ${messageOf(error)}`, { cause: error });
    }
    try {
      return await readAll(`/proc/self/fd/${place}`, path);
    } finally {
      closeFd(place);
    }
  } finally {
    await root.close();
  }
}

async function readAll(place: string, path: string): Promise<Buffer> {
  const found = await stat(place);
  const { size } = found;
  if (!found.isFile()) throw invalid(`cannot read ${path} of the container: not a regular file`);
  if (size > LIMIT_BYTES) throw invalid(`cannot read ${path} of the container: larger than ${LIMIT_BYTES} bytes`);
  const file = await open(place, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const buffer = Buffer.alloc(size);
    let length = 0;
    while (length < size) {
      const { bytesRead } = await file.read(buffer, length, size - length, length);
      if (bytesRead === 0) break;
      length += bytesRead;
    }
    return buffer.subarray(0, length);
  } finally {
    await file.close();
  }
}
