/** Tells whether a file system says with each name of a directory which type of file it is (d_type of getdents(2)). */
import { closeSync, openSync } from 'node:fs';
import { libc } from '../ffi/libc.js';

const getdents = libc.checked<[fd: number, buffer: Buffer, bytes: number]>(
  'getdents64',
  'long getdents64(int fd, void *buffer, size_t bytes)',
);

const BUFFER_BYTES = 4096;
// struct linux_dirent64 in linux/dirent.h
const LENGTH_AT = 16;
const TYPE_AT = 18;
const NAME_AT = 19;
const DT_UNKNOWN = 0;

/**
 * @param directory is a small directory that is not empty. If this is false, overlayfs would take whiteouts for files.
 */
export function tellsTypes(directory: string): boolean {
  const buffer = Buffer.alloc(BUFFER_BYTES);
  const fd = openSync(directory, 'r');
  try {
    const length = getdents(fd, buffer, buffer.length);
    for (let at = 0; at < length; at += buffer.readUInt16LE(at + LENGTH_AT)) {
      const name = buffer.toString('latin1', at + NAME_AT, buffer.indexOf(0, at + NAME_AT));
      if (name !== '.' && name !== '..' && buffer[at + TYPE_AT] === DT_UNKNOWN) return false;
    }
    return true;
  } finally {
    closeSync(fd);
  }
}
