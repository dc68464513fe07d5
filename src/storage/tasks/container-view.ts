/** Opens the view of a container's files in the worker that works on them. */
import { isEngineError } from '../../errors/engine-error.js';
import type { ContainerView } from '../../ports/archives.js';
import type { IdMaps } from '../../ports/id-maps.js';
import { makeFilesAs } from '../../sys/users/file-system-ids.js';
import { rootOwner } from '../../sys/users/id-maps.js';
import { openMountView } from '../../sys/mount/mount-view.js';
import { storageError } from '../storage-error.js';

/**
 * Calls `use` with the root of the view, which is closed afterwards. Files that the thread makes until it turns to
 * another task belong to the root user of `idMaps`. @throws what `use` throws, and as openMountView.
 */
export async function withView<T>(
  { rootfs, mounts, tmpfs, procFd, usernsFd }: ContainerView,
  idMaps: IdMaps | undefined,
  use: (rootFd: number) => T | Promise<T>,
): Promise<T> {
  makeFilesAs(rootOwner(idMaps));
  const destinations = [...mounts, ...tmpfs]
    .map(({ destination }) => destination)
    .sort((a, b) => a.split('/').length - b.split('/').length);
  const view = openMountView({
    rootfs,
    mounts,
    usernsFd,
    ...(procFd === undefined ? {} : { running: { procFd, destinations } }),
  });
  try {
    return await use(view.rootFd);
  } catch (error) {
    throw isEngineError(error) ? error : storageError(error, 'reading files of the container');
  } finally {
    view.close();
  }
}
