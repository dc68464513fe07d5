/** Makes the build engine and what its classic door needs. */
import { Builds } from '../actors/build/builds.js';
import { TarContexts } from '../build/tar-context.js';
import { lookUpUser } from '../runtime/user-lookup.js';
import type { Base } from './base.js';
import type { Containers } from './containers.js';
import type { Drivers } from './drivers.js';
import type { Transfers } from './transfers.js';

export interface Builder {
  readonly builds: Builds;
  readonly contexts: TarContexts;
}

export function composeBuilder(
  { log, replies, temporary, idMaps }: Base,
  { images, layers, pool, emit }: Drivers,
  { containers, ios }: Containers,
  { pulls }: Transfers,
): Builder {
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
  return { builds, contexts: new TarContexts(temporary.tmpDir) };
}
