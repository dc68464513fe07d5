/** Makes the build engine and what its classic door needs. */
import { availableParallelism } from 'node:os';
import { Builds } from '../actors/build/builds.js';
import { ImageConfigs } from '../actors/build/image-configs.js';
import { RemoteCaches } from '../actors/build/remote-caches.js';
import { StepClaims } from '../actors/build/solve/claims.js';
import { Slots } from '../actors/kit/slots.js';
import { Sources } from '../build/sources/sources.js';
import { TarContexts } from '../build/tar-context.js';
import { lookUpUser } from '../runtime/user-lookup.js';
import type { ContextCache } from '../http/buildkit/context-cache.js';
import type { BuildKitDoor } from '../http/buildkit/door.js';
import type { Base } from './base.js';
import { type BuildCacheParts, composeBuildCache } from './build-cache.js';
import { composeBuildDoor } from './build-door.js';
import type { Containers } from './containers.js';
import type { Drivers } from './drivers.js';
import { stepRunDeps } from './step-runs.js';
import type { Transfers } from './transfers.js';

export interface Builder extends BuildCacheParts {
  readonly builds: Builds;
  readonly contexts: TarContexts;
  readonly sources: Sources;
  readonly door: BuildKitDoor;
  /** Directories with files of clients. */
  readonly received: ContextCache;
}

export function composeBuilder(base: Base, drivers: Drivers, lives: Containers, transfers: Transfers): Builder {
  const { pulls, pushes, exportPool, transferPool } = transfers;
  const { replies, temporary } = base;
  const { images, layers, pool, emit } = drivers;
  const { containers, ios } = lives;
  const cacheParts = composeBuildCache(base, drivers);
  const { cache, cacheGarbage, gcRules } = cacheParts;
  const sources = new Sources({ kept: cache, tmpDir: temporary.tmpDir, pool });
  const configs = new ImageConfigs(images, pulls.queries);
  const builds = new Builds({
    ...stepRunDeps(base, drivers, lives, cache),
    idMaps: base.idMaps,
    claims: new StepClaims(),
    processes: new Slots(availableParallelism()),
    cache,
    sources,
    configs,
    remoteCaches: new RemoteCaches({
      images,
      layers,
      sessions: pulls.sessions,
      transfers: pulls.transfers,
      pool: transferPool.pool,
      tmpDir: temporary.tmpDir,
      maxConcurrentDownloads: () => base.live.current.maxConcurrentDownloads,
    }),
    blobParts: { layers, pool: exportPool, tmpDir: temporary.tmpDir },
    replies,
    images,
    containers,
    ios,
    pulls: pulls.pulls,
    lookUpUser: (rootfs, user) => lookUpUser(rootfs, user, []),
    emit: (...event) => emit('image', ...event),
    onEnd: () => cacheGarbage.schedule(),
    emitPrune: (attributes) => emit('builder', 'prune', '', attributes),
  });
  const contexts = new TarContexts(temporary.tmpDir);
  const { door, received } = composeBuildDoor(base, drivers, {
    builds,
    contexts,
    configs,
    cache,
    pushes,
    exportPool,
    sources,
    gcRules,
    keepsIndexes: transfers.keptContent !== undefined,
  });
  return { builds, contexts, ...cacheParts, sources, door, received };
}
