/** Reads small text files of a container's root filesystem. */
import { closeSync, constants, fstatSync, openSync, readSync } from 'node:fs';
import { open } from 'node:fs/promises';
import { invalid, isEngineError, messageOf } from '../errors/engine-error.js';
import { closeFd } from '../sys/files/fd.js';
import { O_PATH, openNested } from '../sys/files/open-in-root.js';
import { QuickReader } from '../sys/files/quick-reader.js';

/** No real passwd or group file is nearly so large; a larger one is an attack on the daemon's memory. */
const LIMIT_BYTES = 4 * 1024 * 1024;
/** A file of this size is mostly in memory, and read in less time than another thread takes to be told of it. */
const QUICK_BYTES = 64 * 1024;

const quick = new QuickReader();

/**
 * Returns the content of a regular file below `rootfs`; symbolic links are followed only inside it. Undefined when
 * there is none.
 * @throws EngineError invalid when the file is no regular file or larger than 4 MiB.
 */
export async function readRootfsFile(rootfs: string, path: string): Promise<Buffer | undefined> {
  let place: number;
  try {
    // Opening a device would have effects, on the host too, so it is looked at first.
    place = openNested(rootfs, [path], O_PATH);
  } catch (error) {
    if (isEngineError(error) && (error.code === 'ENOENT' || error.code === 'ENOTDIR' || error.code === 'ELOOP'))
      return undefined;
    throw invalid(`cannot read ${path} of the container: ${messageOf(error)}`, { cause: error });
  }
  try {
    // The kernel has found it just now, so this waits for no disk.
    const found = fstatSync(place);
    if (!found.isFile()) throw invalid(`cannot read ${path} of the container: not a regular file`);
    if (found.size > LIMIT_BYTES)
      throw invalid(`cannot read ${path} of the container: larger than ${LIMIT_BYTES} bytes`);
    const [source, size] = [`/proc/self/fd/${place}`, found.size];
    if (size > QUICK_BYTES) return await readStart(source, size);
    return await quick.read(
      () => readStartNow(source, size),
      () => readStart(source, size),
    );
  } finally {
    closeFd(place);
  }
}

/** Does the same as `readStart` at once. The container may make the file longer meanwhile, of which nothing is read. */
function readStartNow(path: string, size: number): Buffer {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  try {
    const buffer = Buffer.alloc(size);
    return buffer.subarray(0, readSync(fd, buffer, 0, size, 0));
  } finally {
    closeSync(fd);
  }
}

/** Reads so many bytes of a file, or less if it ends before. */
async function readStart(path: string, size: number): Promise<Buffer> {
  const file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
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
