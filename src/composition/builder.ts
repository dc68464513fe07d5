/** Makes the build engine and what its classic door needs. */
import { Builds } from '../actors/build/builds.js';
import { ImageConfigs } from '../actors/build/image-configs.js';
import { TarContexts } from '../build/tar-context.js';
import { lookUpUser } from '../runtime/user-lookup.js';
import type { BuildKitDoor } from '../http/buildkit/door.js';
import type { Base } from './base.js';
import { composeBuildDoor } from './build-door.js';
import type { Containers } from './containers.js';
import type { Drivers } from './drivers.js';
import type { Transfers } from './transfers.js';

export interface Builder {
  readonly builds: Builds;
  readonly contexts: TarContexts;
  readonly door: BuildKitDoor;
}

export function composeBuilder(
  base: Base,
  drivers: Drivers,
  { containers, ios }: Containers,
  { pulls }: Transfers,
): Builder {
  const { log, replies, temporary, idMaps } = base;
  const { images, layers, pool, emit } = drivers;
  const builds = new Builds({
    log,
    replies,
    images,
    layers,
    pool,
    containers,
    ios,
    pulls: pulls.pulls,
    idMaps,
    tmpDir: temporary.tmpDir,
    lookUpUser: (rootfs, user) => lookUpUser(rootfs, user, []),
    emit: (...event) => emit('image', ...event),
  });
  const contexts = new TarContexts(temporary.tmpDir);
  const configs = new ImageConfigs(images, pulls.queries);
  return { builds, contexts, door: composeBuildDoor(base, drivers, { builds, contexts, configs }) };
}
