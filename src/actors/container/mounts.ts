/** Makes the planned mounts of a new container real: host directories, volumes, and what the image has in their place. */
import { mkdir, stat } from 'node:fs/promises';
import { invalid } from '../../errors/engine-error.js';
import type { MountPoint } from '../../ports/container.js';
import type { ContainerRecord } from './container.record.js';
import type { ContainerDeps } from './deps.js';
import type { Undo } from './undo.js';

/** Returns the record with every source filled in. Throws invalid for a bind source that must exist and does not. */
export async function realizeMounts(deps: ContainerDeps, record: ContainerRecord, undo: Undo): Promise<ContainerRecord> {
  if (record.mounts.length === 0) return record;
  const mounts: MountPoint[] = [];
  const fresh: { readonly mountpoint: string; readonly destination: string }[] = [];
  for (const point of record.mounts) {
    if (point.Type === 'bind') await checkBindSource(record, point);
    if (point.Type !== 'volume' || point.Name === undefined || point.Source !== '') {
      mounts.push(point);
      continue;
    }
    const request = record.hostConfig.Mounts?.find(({ Target }) => Target === point.Destination)?.VolumeOptions;
    const name = point.Name;
    const anonymous = /^[0-9a-f]{64}$/.test(name);
    const volume = await deps.volumes.ensure({
      name,
      anonymous,
      driver: point.Driver ?? 'local',
      ...(request?.DriverConfig?.Options ? { options: request.DriverConfig.Options } : {}),
      ...(request?.Labels ? { labels: request.Labels } : {}),
    });
    if (volume.created) {
      if (anonymous) undo.add('anonymous volume', () => deps.volumes.remove(name));
      if (!request?.NoCopy && !point.Mode.split(',').includes('nocopy')) fresh.push({ mountpoint: volume.mountpoint, destination: point.Destination });
    }
    mounts.push({ ...point, Source: volume.mountpoint });
  }
  if (fresh.length > 0) {
    const rootfs = await deps.layers.mount(record.id);
    try {
      for (const { mountpoint, destination } of fresh) await deps.volumes.populate(mountpoint, rootfs, destination);
    } finally {
      await deps.layers.unmount(record.id);
    }
  }
  return { ...record, mounts };
}

/** A source given by `Binds` is made when it is missing; one given by `Mounts` must exist, unless the client says otherwise. */
async function checkBindSource(record: ContainerRecord, point: MountPoint): Promise<void> {
  const request = record.hostConfig.Mounts?.find(({ Target }) => Target === point.Destination);
  const exists = await stat(point.Source).then(
    () => true,
    () => false,
  );
  if (exists) return;
  if (request && request.BindOptions?.CreateMountpoint !== true) {
    throw invalid(`invalid mount config for type "bind": bind source path does not exist: ${point.Source}`);
  }
  await mkdir(point.Source, { recursive: true });
}

/** Removes the volumes that only this container had. One that somebody else uses by now stays. */
export async function removeAnonymousVolumes(deps: ContainerDeps, record: ContainerRecord): Promise<void> {
  for (const { Type, Name } of record.mounts) {
    if (Type !== 'volume' || Name === undefined || !deps.volumes.isAnonymous(Name)) continue;
    await deps.volumes.remove(Name).catch((error: unknown) => deps.log.debug({ err: error, volume: Name }, 'anonymous volume kept'));
  }
}
