/** Makes the build cache and that which keeps it small. */
import { statfsSync } from 'node:fs';
import { join } from 'node:path';
import { FileBuildCache } from '../build/cache/build-cache.js';
import { CacheGarbage } from '../build/cache/cache-garbage.js';
import { type GcRule, gcRules } from '../build/cache/gc-rules.js';
import { DEFAULT_BUILDER_GC } from '../config/builder-gc.js';
import { layersOfAll } from '../images/layers-of-all.js';
import { driverPath } from '../storage/drivers/index.js';
import { rootOwner } from '../sys/users/id-maps.js';
import type { Base } from './base.js';
import type { Drivers } from './drivers.js';

export interface BuildCacheParts {
  readonly cache: FileBuildCache;
  readonly cacheGarbage: CacheGarbage;
  readonly gcRules: readonly GcRule[];
}

export function composeBuildCache(
  { live, log, idMaps, dataRoot }: Base,
  { images, layers, pool }: Drivers,
): BuildCacheParts {
  const cache = new FileBuildCache({
    root: join(dataRoot, driverPath(layers.place, 'builder/cache')),
    layers,
    pool,
    owner: rootOwner(idMaps),
    imageLayers: layersOfAll(images),
    log,
  });
  const { blocks, bsize } = statfsSync(dataRoot);
  const { enabled, ...settings } = live.fixed.builderGc ?? DEFAULT_BUILDER_GC;
  const rules = enabled ? gcRules(settings, blocks * bsize) : [];
  return { cache, cacheGarbage: new CacheGarbage({ cache, rules, log }), gcRules: rules };
}
