/** Container actors use these: the drivers, and the choices that the configuration makes for each container. */
import { join } from 'node:path';
import { effectiveHostConfig } from '../actors/container/create/effective-host-config.js';
import type { ContainerDeps } from '../actors/container/deps.js';
import type { ContainerHolds } from '../actors/container/holds.js';
import { PauseGate } from '../actors/container/life/pause-gate.js';
import { writeContainerFiles } from '../actors/container/mounts/files.js';
import { filesRoot } from '../actors/container/mounts/userns.js';
import type { ContainerViews } from '../actors/container/views.js';
import { invalid } from '../errors/engine-error.js';
import { cgroupsPathFor } from '../runtime/cgroup-path.js';
import { OwnUsers } from '../sys/users/own-users.js';
import { OWN_USERS } from '../sys/users/remapped-user.js';
import type { Base } from './base.js';
import type { Drivers } from './drivers.js';

export function containerDeps(
  base: Base,
  drivers: Drivers,
  views: ContainerViews,
  holds: ContainerHolds,
): ContainerDeps {
  const { execRoot, idMaps, shownMaps, settings, log } = base;
  const { records, images, layers, network, logs, tasks, stdio, specs, volumes, emit, events, metrics } = drivers;
  return {
    counted: (action, run) => metrics.counted(action, run),
    log,
    records,
    pauseGate: new PauseGate(),
    images,
    layers,
    network,
    logs,
    tasks,
    stdio,
    specs,
    volumes,
    volumeUsers: (name) => volumeUsers(views, name),
    emit,
    eventsWritten: () => events.written(),
    idMaps,
    shownMaps,
    ioRoot: join(execRoot, 'io'),
    placesRoot: join(execRoot, 'places'),
    rootsRoot: join(execRoot, 'roots'),
    givesOwnUsers: base.live.fixed.usernsRemap === OWN_USERS,
    ownUsers: new OwnUsers(() => layers.writableIds().flatMap((id) => layers.mapsOf(id) ?? [])),
    shmRoot: join(execRoot, 'shm'),
    find: (id) => views.get(id),
    releaseHolds: (id) => holds.release(id),
    relabel: base.seLinux && ((path, label) => drivers.pool.run('relabel-tree', { path, label })),
    runtimeFor: ({ hostConfig }) => settings.runtimeChoice(hostConfig.Runtime),
    cgroupsPathFor: cgroupsPaths(base),
    initPathFor: (record) => (effectiveHostConfig(record).Init ? installedInit(settings.initPath) : undefined),
    writeFiles: filesWriter(base, drivers, views),
  };
}

/** Returns the containers that have a volume. */
function volumeUsers(views: ContainerViews, name: string): readonly string[] {
  return views
    .list()
    .flatMap(({ id, mounts }) => (mounts.some((mount) => mount.Type === 'volume' && mount.Name === name) ? [id] : []));
}

function cgroupsPaths({ live, facts, settings }: Base): ContainerDeps['cgroupsPathFor'] {
  const { cgroupParent } = live.fixed;
  return ({ id, hostConfig }) => {
    const driver = settings.runtimeChoice(hostConfig.Runtime).systemdCgroup ? 'systemd' : settings.cgroupDriver;
    const named = hostConfig.CgroupParent || cgroupParent;
    // Runtimes may have different cgroup drivers; the systemd driver wants slices as parents.
    const parent = driver === settings.cgroupDriver || named.endsWith('.slice') ? named : '';
    return cgroupsPathFor({ driver, parent, id, version: facts.cgroup.version, ownCgroup: facts.cgroup.own });
  };
}

function filesWriter(
  { live, idMaps }: Base,
  { network, records, layers }: Drivers,
  views: ContainerViews,
): ContainerDeps['writeFiles'] {
  const config = live.fixed;
  return (record, before) =>
    writeContainerFiles(
      {
        network,
        find: (id) => views.get(id),
        dir: (id) => records.dir(id),
        owner: (container) => filesRoot({ idMaps, layers }, container),
        settings: () => ({
          dns: config.dns,
          dnsSearch: config.dnsSearch,
          dnsOptions: config.dnsOpts,
          hostGatewayIps: config.hostGatewayIps.length > 0 ? config.hostGatewayIps : network.hostAddresses(),
        }),
      },
      record,
      before,
    );
}

/** Returns the path of the init program. @throws EngineError invalid when there is none. */
function installedInit(path: string): string {
  if (path === '')
    throw invalid(
      'no init process: exec: "docker-init": executable file not found in $PATH; install tini or set init-path',
      { code: 'NO_INIT' },
    );
  return path;
}
