/** Counts what a subvolume has alone. Synchronous, for worker threads. */
import { control, walkTreeItems, withDirectory } from './ioctl.js';
import { subvolumeId } from './subvolumes.js';

// linux/btrfs.h
const GET_SUBVOL_INFO = 0x81f8943c;
const INFO_BYTES = 504;
const PARENT_UUID_AT = 312;
const UUID_BYTES = 16;
const CREATED_AT = 352;
// linux/btrfs_tree.h: struct btrfs_file_extent_item
const EXTENT_DATA = 108;
const TYPE_AT = 20;
const IS_INLINE = 0;
const PLACE_AT = 21;
const LENGTH_AT = 45;
/** Bytes that stat(2) tells of a file whose content lies among the metadata. */
const INLINE_BYTES = 4096;

/**
 * Returns the bytes, in blocks as stat(2) counts them, that were written to a subvolume since it was made: those of the
 * snapshot's source do not count. What is in memory only does not count either.
 */
export function ownBytes(path: string): number {
  return withDirectory(path, (fd) => {
    const since = firstOwnTransaction(fd);
    let total = 0;
    for (const { data } of walkTreeItems(fd, subvolumeId(fd), EXTENT_DATA, since)) {
      if (data.readBigUInt64LE(0) < since) continue;
      if (data[TYPE_AT] === IS_INLINE) total += INLINE_BYTES;
      // Holes are nowhere.
      else if (data.readBigUInt64LE(PLACE_AT) !== 0n) total += Number(data.readBigUInt64LE(LENGTH_AT));
    }
    return total;
  });
}

/** A snapshot is made at the end of a transaction, so all that is its own is younger. */
function firstOwnTransaction(fd: number): bigint {
  const info = Buffer.alloc(INFO_BYTES);
  control(fd, 'GET_SUBVOL_INFO', GET_SUBVOL_INFO, info);
  const isSnapshot = info.subarray(PARENT_UUID_AT, PARENT_UUID_AT + UUID_BYTES).some((byte) => byte !== 0);
  return isSnapshot ? info.readBigUInt64LE(CREATED_AT) + 1n : 0n;
}
