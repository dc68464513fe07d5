/** Tells whether the data root is on btrfs, and what this btrfs is. */
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { release } from 'node:os';
import { unavailable } from '../../../errors/engine-error.js';
import { fileSystemId, isBtrfs } from '../../../sys/btrfs/subvolumes.js';
import type { DriverStatus } from '../driver.js';

/** @throws EngineError unavailable when the directory is on another file system. */
export function checkFileSystem(directory: string): void {
  if (!isBtrfs(directory))
    throw unavailable(
      `storage driver btrfs: prerequisites for driver not satisfied (wrong filesystem?): ${directory} is not on ` +
        'btrfs; mount one there, name another data-root, or choose another storage-driver',
      { code: 'BTRFS_UNSUPPORTED' },
    );
}

/** Returns the rows for `info`. The first one is that of other engines. */
export function statusOf(root: string): DriverStatus {
  const id = fileSystemId(root);
  return [
    ['Btrfs', ''],
    ['Kernel Version', release()],
    ['Send Stream Version', feature('send_stream_version') ?? '1'],
    ['File System', id],
    ['Quota Groups', quotaMode(id)],
  ];
}

/** Kernels before 5.9 do not tell here whether there are quota groups. */
function quotaMode(id: string): string {
  const directory = `/sys/fs/btrfs/${id}/qgroups`;
  if (!existsSync(directory) || read(join(directory, 'enabled')) === '0') return 'off';
  const inconsistent = read(join(directory, 'inconsistent')) === '1';
  return `${read(join(directory, 'mode')) ?? 'qgroup'}${inconsistent ? ', inconsistent' : ''}`;
}

const feature = (name: string): string | undefined => read(`/sys/fs/btrfs/features/${name}`);

function read(path: string): string | undefined {
  return existsSync(path) ? readFileSync(path, 'utf8').trim() : undefined;
}
