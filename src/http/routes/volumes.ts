/** Routes for volumes of any driver. */
import { conflict, isEngineError, unavailable } from '../../errors/engine-error.js';
import { notManager } from '../../errors/not-manager.js';
import type { ContainerRecord } from '../../actors/container/container.record.js';
import { dictionary, nullable, object, optional, anything, string } from '../api/decode.js';
import { parseFilters, type Filters } from '../api/filters.js';
import { volumeView, type VolumeInfo } from '../api/volume-view.js';
import { route, type Route } from '../route.js';

export interface VolumeRouteDeps {
  readonly volumes: {
    list(): readonly VolumeInfo[];
    listAll(): Promise<{ readonly volumes: readonly VolumeInfo[]; readonly warnings: readonly string[] }>;
    inspect(name: string): Promise<VolumeInfo>;
    ensure(request: {
      readonly name: string;
      readonly driver: string;
      readonly options: Record<string, string>;
      readonly labels?: Record<string, string>;
    }): Promise<VolumeInfo & { readonly created: boolean }>;
    /** Removes a volume, and tells of it. */
    remove(name: string, force?: boolean): Promise<unknown>;
    size(name: string): Promise<number>;
  };
  readonly containers: { list(): readonly ContainerRecord[] };
  readonly emit: (action: string, name: string, attributes: Readonly<Record<string, string>>) => void;
}

const body = object({
  Name: string(),
  Driver: string(),
  DriverOpts: dictionary(string()),
  Labels: nullable(dictionary(string())),
  ClusterVolumeSpec: optional(anything()),
});

export function volumeRoutes(deps: VolumeRouteDeps): Route[] {
  const { volumes, containers, emit } = deps;
  const users = (name: string): string[] => usersOf(containers.list(), name);
  let isPruning = false;

  return [
    route('GET', '/volumes', async (x) => {
      const filters = parseFilters(x.query.text('filters')).allow(['dangling', 'name', 'driver', 'label']);
      const dangling = filters.flag('dangling');
      const all = await volumes.listAll();
      const isWanted = (volume: VolumeInfo): boolean =>
        matches(filters, volume) &&
        filters.matchesPattern('name', volume.name) &&
        (dangling === undefined || dangling === (users(volume.name).length === 0));
      const Warnings = all.warnings.length > 0 ? all.warnings : null;
      x.sendJson(200, { Volumes: all.volumes.filter(isWanted).map(volumeView), Warnings });
    }),

    route('POST', '/volumes/create', async (x) => {
      const { Name, Driver, DriverOpts, Labels, ClusterVolumeSpec } = body.decode(
        (await x.optionalJson<unknown>()) ?? {},
        '',
      );
      if (ClusterVolumeSpec !== undefined && x.atLeast(1, 42)) throw notManager();
      const { created, ...volume } = await volumes.ensure({
        name: Name,
        driver: Driver,
        options: DriverOpts,
        ...(Labels ? { labels: Labels } : {}),
      });
      if (created) emit('create', volume.name, { driver: volume.driver });
      x.sendJson(201, volumeView(volume));
    }),

    route('GET', '/volumes/{name}', async (x) => x.sendJson(200, volumeView(await volumes.inspect(x.param('name'))))),

    route('PUT', '/volumes/{name}', () => {
      throw unavailable('volume update only valid for cluster volumes, but swarm is unavailable', { code: 'NO_SWARM' });
    }),

    route('DELETE', '/volumes/{name}', async (x) => {
      const [name, force] = [x.param('name'), x.query.flag('force')];
      const inUse = users(name);
      if (inUse.length > 0)
        throw conflict(`remove ${name}: volume is in use - [${inUse.join(', ')}]`, { code: 'VOLUME_IN_USE' });
      try {
        await volumes.remove(name, force);
      } catch (error) {
        if (!force || !isEngineError(error, 'not-found')) throw error;
      }
      x.sendEmpty(204);
    }),

    route('POST', '/volumes/prune', async (x) => {
      const filters = parseFilters(x.query.text('filters')).allow(['label', 'label!', 'all']);
      // Before 1.42 named volumes were pruned too, without being asked for.
      const named = x.atLeast(1, 42) ? filters.flag('all') === true : true;
      if (isPruning) throw conflict('a prune operation is already running');
      isPruning = true;
      try {
        const isUnused = (volume: VolumeInfo): boolean =>
          volume.driver === 'local' &&
          (named || volume.isAnonymous) &&
          volume.options === null &&
          users(volume.name).length === 0 &&
          matches(filters, volume);
        x.sendJson(200, await prune(deps, isUnused));
      } finally {
        isPruning = false;
      }
    }),
  ];
}

/** Returns the ids of the containers that have a volume. */
function usersOf(containers: readonly ContainerRecord[], name: string): string[] {
  return containers.flatMap(({ id, mounts }) =>
    mounts.some(({ Type, Name }) => Type === 'volume' && Name === name) ? [id] : [],
  );
}

/** Removes volumes one after another, each if nobody has begun to use it meanwhile. */
async function prune(
  { volumes, emit }: VolumeRouteDeps,
  isUnused: (volume: VolumeInfo) => boolean,
): Promise<{ readonly VolumesDeleted: readonly string[]; readonly SpaceReclaimed: number }> {
  const deleted: string[] = [];
  let reclaimed = 0;
  for (const volume of volumes.list()) {
    if (!isUnused(volume)) continue;
    const size = await volumes.size(volume.name);
    await volumes.remove(volume.name);
    deleted.push(volume.name);
    reclaimed += size;
  }
  emit('prune', '', { reclaimed: String(reclaimed) });
  return { VolumesDeleted: deleted, SpaceReclaimed: reclaimed };
}

function matches(filters: Filters, { driver, labels }: VolumeInfo): boolean {
  return (
    filters.matchesExactly('driver', driver) &&
    filters.matchesLabels(labels) &&
    !(filters.has('label!') && filters.matchesLabels(labels, 'label!'))
  );
}
