/**
 * Sets project quotas of XFS: all files below a directory share one limit of blocks (quotactl(2),
 * ioctl_xfs_fsgetxattr(2)).
 */
import { libc, syscallError } from '../ffi/libc.js';

const ioctl = libc.func<[fd: number, request: number, argument: Buffer]>(
  'int ioctl(int fd, unsigned long request, void *argument)',
);
const syscall = libc.func<[number: number, fd: number, command: number, id: number, address: Buffer]>(
  'long syscall(long number, unsigned int fd, unsigned int cmd, unsigned int id, void *addr)',
);

// linux/fs.h
const FS_IOC_FSGETXATTR = 0x801c581f;
const FS_IOC_FSSETXATTR = 0x401c5820;
const FSXATTR_BYTES = 28;
const XFLAGS_AT = 0;
const PROJID_AT = 12;
const FS_XFLAG_PROJINHERIT = 0x200;
// asm-generic/unistd.h, the same on x86-64 and arm64; since Linux 5.14
const SYS_QUOTACTL_FD = 443;
// linux/dqblk_xfs.h: Q_XGETQUOTA and Q_XSETQLIM of the type PRJQUOTA, struct fs_disk_quota
const GET_PROJECT_QUOTA = (0x5803 << 8) | 2;
const SET_PROJECT_LIMIT = (0x5804 << 8) | 2;
const DISK_QUOTA_BYTES = 112;
const FS_DQUOT_VERSION = 1;
const FS_PROJ_QUOTA = 2;
const FS_DQ_BSOFT = 1 << 2;
const FS_DQ_BHARD = 1 << 3;
const HARD_LIMIT_AT = 8;
const SOFT_LIMIT_AT = 16;
const BLOCK_BYTES = 512;

function attributes(fd: number): Buffer {
  const buffer = Buffer.alloc(FSXATTR_BYTES);
  if (ioctl(fd, FS_IOC_FSGETXATTR, buffer) < 0) throw syscallError('ioctl FS_IOC_FSGETXATTR', libc.errno());
  return buffer;
}

/** Returns the project of an open file or directory; 0 for none. @throws EngineError code ENOTTY, EOPNOTSUPP. */
export function projectOf(fd: number): number {
  return attributes(fd).readUInt32LE(PROJID_AT);
}

/** Makes an empty directory, and all that will be made in it, part of a project. */
export function joinProject(fd: number, project: number): void {
  const buffer = attributes(fd);
  buffer.writeUInt32LE((buffer.readUInt32LE(XFLAGS_AT) | FS_XFLAG_PROJINHERIT) >>> 0, XFLAGS_AT);
  buffer.writeUInt32LE(project, PROJID_AT);
  if (ioctl(fd, FS_IOC_FSSETXATTR, buffer) < 0) throw syscallError('ioctl FS_IOC_FSSETXATTR', libc.errno());
}

/**
 * Limits the bytes of a project on the file system of an open file; 0 lifts the limit. @throws EngineError code ENOSYS,
 * ESRCH.
 */
export function limitProject(fd: number, project: number, bytes: number): void {
  setLimits(fd, project, FS_DQ_BSOFT | FS_DQ_BHARD, BigInt(Math.ceil(bytes / BLOCK_BYTES)));
}

/**
 * Runs `work` while a project may have `roomBytes` more than its limit. The soft limit stays meanwhile: it tells what
 * the limit is, also after the end of the process. @throws EngineError as `limitProject`, and what `work` throws.
 */
export async function withRoom<T>(fd: number, project: number, roomBytes: number, work: () => Promise<T>): Promise<T> {
  const quota = Buffer.alloc(DISK_QUOTA_BYTES);
  if (syscall(SYS_QUOTACTL_FD, fd, GET_PROJECT_QUOTA, project, quota) < 0)
    throw syscallError('quotactl_fd', libc.errno());
  const blocks = quota.readBigUInt64LE(SOFT_LIMIT_AT);
  setLimits(fd, project, FS_DQ_BHARD, blocks + BigInt(Math.ceil(roomBytes / BLOCK_BYTES)));
  try {
    return await work();
  } finally {
    setLimits(fd, project, FS_DQ_BHARD, blocks);
  }
}

function setLimits(fd: number, project: number, fields: number, blocks: bigint): void {
  const quota = Buffer.alloc(DISK_QUOTA_BYTES);
  quota.writeInt8(FS_DQUOT_VERSION, 0);
  quota.writeInt8(FS_PROJ_QUOTA, 1);
  quota.writeUInt16LE(fields, 2);
  quota.writeUInt32LE(project, 4);
  quota.writeBigUInt64LE(blocks, HARD_LIMIT_AT);
  quota.writeBigUInt64LE(blocks, SOFT_LIMIT_AT);
  if (syscall(SYS_QUOTACTL_FD, fd, SET_PROJECT_LIMIT, project, quota) < 0)
    throw syscallError('quotactl_fd', libc.errno());
}
