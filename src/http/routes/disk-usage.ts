/** Tells what the data root holds: `system df`, and the check that every byte of it has an owner. */
import type { DiskUsage } from '../../actors/engine/disk-usage.js';
import { invalid } from '../../errors/engine-error.js';
import type { FsckReport } from '../../inventory/fsck.js';
import type { BuildEngine } from '../../ports/build.js';
import { diskUsageJson, type DiskUsageSources } from '../api/disk-usage.js';
import { fsckJson } from '../api/fsck.js';
import { route, type Route } from '../route.js';

export interface DiskUsageRouteDeps extends DiskUsageSources {
  readonly usage: { measure(): Promise<DiskUsage> };
  readonly builds: Pick<BuildEngine, 'cacheUsage'>;
  /** Checks the data root while the daemon runs. */
  readonly fsck: (repair: boolean) => Promise<FsckReport>;
}

const TYPES = ['container', 'image', 'volume', 'build-cache'];

export function diskUsageRoutes(deps: DiskUsageRouteDeps): Route[] {
  return [
    route('GET', '/system/df', async (x) => {
      const types = x.atLeast(1, 42) ? x.query.all('type') : [];
      for (const type of types)
        if (!TYPES.includes(type)) throw invalid(`unknown object type: ${type}`, { code: 'UNKNOWN_TYPE' });
      const wants = (type: string): boolean => types.length === 0 || types.includes(type);
      const usage = await deps.usage.measure();
      const cache = wants('build-cache') ? await deps.builds.cacheUsage() : [];
      const json = diskUsageJson(deps, usage, cache, wants, (major, minor) => x.atLeast(major, minor));
      x.sendRenderedJson(200, json);
    }),

    route('POST', '/engine/fsck', async (x) => x.sendJson(200, fsckJson(await deps.fsck(!x.query.flag('dryRun'))))),
  ];
}
