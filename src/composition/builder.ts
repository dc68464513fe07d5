/** Makes the build engine and what its classic door needs. */
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { Builds } from '../actors/build/builds.js';
import { ImageConfigs } from '../actors/build/image-configs.js';
import { StepClaims } from '../actors/build/solve/claims.js';
import { Slots } from '../actors/kit/slots.js';
import { FileBuildCache } from '../build/cache/build-cache.js';
import { Sources } from '../build/sources/sources.js';
import { TarContexts } from '../build/tar-context.js';
import { layersOfAll } from '../images/layers-of-all.js';
import { rootOwner } from '../sys/users/id-maps.js';
import { lookUpUser } from '../runtime/user-lookup.js';
import type { BuildKitDoor } from '../http/buildkit/door.js';
import type { Base } from './base.js';
import { composeBuildDoor } from './build-door.js';
import type { Containers } from './containers.js';
import type { Drivers } from './drivers.js';
import { stepRunDeps } from './step-runs.js';
import type { Transfers } from './transfers.js';

export interface Builder {
  readonly builds: Builds;
  readonly contexts: TarContexts;
  readonly cache: FileBuildCache;
  readonly sources: Sources;
  readonly door: BuildKitDoor;
}

export function composeBuilder(base: Base, drivers: Drivers, lives: Containers, { pulls, pushes }: Transfers): Builder {
  const { log, replies, temporary, idMaps, dataRoot } = base;
  const { images, layers, pool, emit } = drivers;
  const { containers, ios } = lives;
  const cache = new FileBuildCache({
    root: join(dataRoot, 'builder/cache'),
    layers,
    pool,
    owner: rootOwner(idMaps),
    imageLayers: layersOfAll(images),
    log,
  });
  const sources = new Sources({ kept: cache, tmpDir: temporary.tmpDir, pool });
  const configs = new ImageConfigs(images, pulls.queries);
  const builds = new Builds({
    ...stepRunDeps(base, drivers, lives, cache),
    claims: new StepClaims(),
    processes: new Slots(availableParallelism()),
    cache,
    sources,
    configs,
    replies,
    images,
    containers,
    ios,
    pulls: pulls.pulls,
    lookUpUser: (rootfs, user) => lookUpUser(rootfs, user, []),
    emit: (...event) => emit('image', ...event),
    emitPrune: (attributes) => emit('builder', 'prune', '', attributes),
  });
  const contexts = new TarContexts(temporary.tmpDir);
  const door = composeBuildDoor(base, drivers, { builds, contexts, configs, cache, pushes, sources });
  return { builds, contexts, cache, sources, door };
}
