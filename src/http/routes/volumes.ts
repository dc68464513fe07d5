/** Volumes of the local driver. */
import { conflict, isEngineError } from '../../errors/engine-error.js';
import type { ContainerRecord } from '../../actors/container/container.record.js';
import { dictionary, nullable, object, optional, anything, string } from '../api/decode.js';
import { parseFilters, type Filters } from '../api/filters.js';
import { route, type Route } from '../route.js';

/** A volume as the store knows it. */
export interface VolumeInfo {
  readonly name: string;
  readonly driver: string;
  readonly mountpoint: string;
  readonly createdAt: string;
  readonly labels: Readonly<Record<string, string>> | null;
  readonly options: Readonly<Record<string, string>> | null;
  readonly isAnonymous: boolean;
}

export interface VolumeRouteDeps {
  readonly volumes: {
    list(): readonly VolumeInfo[];
    get(name: string): VolumeInfo;
    ensure(request: { readonly name: string; readonly driver: string; readonly options: Record<string, string>; readonly labels?: Record<string, string> }): Promise<VolumeInfo & { readonly created: boolean }>;
    remove(name: string): Promise<void>;
    size(name: string): Promise<number>;
  };
  readonly containers: { list(): readonly ContainerRecord[] };
  readonly emit: (action: string, name: string, attributes: Readonly<Record<string, string>>) => void;
}

const body = object({ Name: string(), Driver: string('local'), DriverOpts: dictionary(string()), Labels: nullable(dictionary(string())), ClusterVolumeSpec: optional(anything()) });

export function volumeRoutes({ volumes, containers, emit }: VolumeRouteDeps): Route[] {
  const users = (name: string): string[] => containers.list().flatMap(({ id, mounts }) => (mounts.some(({ Type, Name }) => Type === 'volume' && Name === name) ? [id] : []));
  const remove = async (volume: VolumeInfo): Promise<void> => {
    await volumes.remove(volume.name);
    emit('destroy', volume.name, { driver: volume.driver });
  };
  let isPruning = false;

  return [
    route('GET', '/volumes', (x) => {
      const filters = parseFilters(x.query.text('filters')).allow(['dangling', 'name', 'driver', 'label']);
      const dangling = filters.flag('dangling');
      const selected = volumes
        .list()
        .filter((volume) => matches(filters, volume) && filters.matchesPattern('name', volume.name) && (dangling === undefined || dangling === (users(volume.name).length === 0)));
      x.sendJson(200, { Volumes: selected.map(volumeView), Warnings: null });
    }),

    route('POST', '/volumes/create', async (x) => {
      const { Name, Driver, DriverOpts, Labels } = body.decode((await x.optionalJson<unknown>()) ?? {}, '');
      const { created, ...volume } = await volumes.ensure({ name: Name, driver: Driver || 'local', options: DriverOpts, ...(Labels ? { labels: Labels } : {}) });
      if (created) emit('create', volume.name, { driver: volume.driver });
      x.sendJson(201, volumeView(volume));
    }),

    route('GET', '/volumes/{name}', (x) => x.sendJson(200, volumeView(volumes.get(x.param('name'))))),

    route('DELETE', '/volumes/{name}', async (x) => {
      const name = x.param('name');
      try {
        const volume = volumes.get(name);
        const inUse = users(name);
        if (inUse.length > 0) throw conflict(`remove ${name}: volume is in use - [${inUse.join(', ')}]`, { code: 'VOLUME_IN_USE' });
        await remove(volume);
      } catch (error) {
        if (!x.query.flag('force') || !isEngineError(error, 'not-found')) throw error;
      }
      x.sendEmpty(204);
    }),

    route('POST', '/volumes/prune', async (x) => {
      const filters = parseFilters(x.query.text('filters')).allow(['label', 'label!', 'all']);
      // Before 1.42 named volumes went too, without being asked for.
      const named = x.atLeast(1, 42) ? filters.flag('all') === true : true;
      if (isPruning) throw conflict('a prune operation is already running');
      isPruning = true;
      try {
        const deleted: string[] = [];
        let reclaimed = 0;
        for (const volume of volumes.list()) {
          if ((!named && !volume.isAnonymous) || volume.options !== null || users(volume.name).length > 0 || !matches(filters, volume)) continue;
          const size = await volumes.size(volume.name);
          await remove(volume);
          deleted.push(volume.name);
          reclaimed += size;
        }
        x.sendJson(200, { VolumesDeleted: deleted, SpaceReclaimed: reclaimed });
      } finally {
        isPruning = false;
      }
    }),
  ];
}

function matches(filters: Filters, { driver, labels }: VolumeInfo): boolean {
  return filters.matchesExactly('driver', driver) && filters.matchesLabels(labels) && !(filters.has('label!') && filters.matchesLabels(labels, 'label!'));
}

/** A volume as the API shows it. */
export function volumeView({ createdAt, driver, labels, mountpoint, name, options }: VolumeInfo): Readonly<Record<string, unknown>> {
  return { CreatedAt: createdAt, Driver: driver, Labels: labels, Mountpoint: mountpoint, Name: name, Options: options, Scope: 'local' };
}
