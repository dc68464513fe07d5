/** Everything that the API serves, and the views and services behind it. */
import { ContainerArchives } from '../actors/container/mounts/archives.js';
import { CommitSource } from '../actors/container/mounts/commit-source.js';
import { type ContainerRecord, imagesOf, isRunning } from '../actors/container/container.record.js';
import { filesOwner } from '../actors/container/mounts/files.js';
import { shownLinks } from '../actors/container/network/legacy-links.js';
import { presentOwners } from '../actors/engine/present-owners.js';
import { readProcessFigures } from '../actors/engine/process-figures.js';
import { SystemService } from '../actors/engine/system.js';
import type { Route } from '../http/route.js';
import { absentPartRoutes } from '../http/routes/absent-parts.js';
import { archiveRoutes } from '../http/routes/archive.js';
import { containerStreamRoutes } from '../http/routes/container-streams.js';
import { containerRoutes } from '../http/routes/containers.js';
import { diskUsageRoutes } from '../http/routes/disk-usage.js';
import { engineConfigRoutes } from '../http/routes/engine-config.js';
import { eventRoutes } from '../http/routes/events.js';
import { execRoutes } from '../http/routes/exec.js';
import { imageArchiveRoutes } from '../http/routes/image-archives.js';
import { imageRoutes } from '../http/routes/images.js';
import { networkRoutes } from '../http/routes/networks.js';
import { pingRoutes } from '../http/routes/ping.js';
import { registryRoutes } from '../http/routes/registry.js';
import { statsRoutes } from '../http/routes/stats.js';
import { systemRoutes } from '../http/routes/system.js';
import { volumeRoutes } from '../http/routes/volumes.js';
import { ImageGarbage } from '../images/garbage.js';
import { importImage } from '../images/import.js';
import type { FileImageStore } from '../images/store.js';
import { checkDataRoot } from '../inventory/fsck.js';
import { runtimeFeatures } from '../runtime/runtime-features.js';
import { lookUpUser } from '../runtime/user-lookup.js';
import { BUILD } from '../version.js';
import type { Base } from './base.js';
import type { Containers } from './containers.js';
import type { Drivers } from './drivers.js';
import { hostWarnings } from './host-warnings.js';
import type { Transfers } from './transfers.js';

/** `alerts` are what listeners want `info` to say. */
export function composeRoutes(
  { live, dataRoot, facts, host, settings, log, temporary }: Base,
  {
    layers,
    images,
    network,
    logs,
    records,
    volumes,
    volumePlugins,
    networkPlugins,
    archives,
    tasks,
    events,
    pool,
    emit,
    usage,
  }: Drivers,
  { deps, ios, hooks, containers, services, execs, statsFeeds }: Containers,
  { pulls, pushes, partialBlobs, transferPool, archivePool }: Transfers,
  alerts: () => readonly string[],
): { readonly routes: Route[]; readonly garbage: ImageGarbage } {
  const config = live.fixed;
  const system = new SystemService({
    build: BUILD,
    figures: readProcessFigures,
    host,
    containers,
    images,
    layers,
    settings: settings.shown,
    components: () => settings.components(tasks),
    runtimeFeatures,
    warnings: () => [...hostWarnings(facts, config), ...alerts()],
    listeners: () => events.subscribers,
    plugins: { volume: () => volumePlugins.known, network: () => networkPlugins.known },
  });
  const users = (id: string): readonly { id: string; running: boolean }[] =>
    containers
      .list()
      .filter((record) => imagesOf(record).includes(id))
      .map((record) => ({ id: record.id, running: isRunning(record) }));
  const garbage = new ImageGarbage({
    dataRoot,
    rules: {
      highPercent: config.imageGcHighPercent,
      lowPercent: config.imageGcLowPercent,
      minAgeSeconds: config.imageGcMinAgeSeconds,
    },
    store: images,
    users,
    emit: (action, id, attributes) => emit('image', action, id, attributes),
    layerBytes: (chainIds) => usage.layerBytes(chainIds),
    log,
  });
  const filesDir = (record: ContainerRecord): string => records.dir(filesOwner(record, (id) => containers.get(id)));
  const view = {
    links: (record: ContainerRecord) => shownLinks(record, (id) => containers.get(id)),
    imageStillNamed: (record: ContainerRecord) => images.stillNames(record.config.Image, record.image),
    graphData: (id: string) => ({ Name: layers.driver, Data: layers.graphData(id) }),
    filesDir,
    sandboxKey: ({ id, hostConfig }: ContainerRecord) =>
      hostConfig.NetworkMode === 'host' ? '/proc/1/ns/net' : network.sandboxPath(id),
    execIds: (id: string) => execs.idsOf(id),
    droppedLines: (id: string) => ios.droppedLines(id),
  };
  const routes = [
    ...pingRoutes({ builderVersion: '1', swarmState: () => 'inactive' }),
    ...systemRoutes(system),
    ...absentPartRoutes(),
    ...containerRoutes({
      containers,
      services,
      view,
      imageId: (reference) => imageIdOf(images, reference),
      isAncestor: (image, ancestor) => isAncestor(images, image, ancestor),
      isExperimental: () => settings.shown().experimental,
    }),
    ...containerStreamRoutes({ containers, ios, logs, services, dir: (id) => records.dir(id) }),
    ...statsRoutes({ containers, feeds: statsFeeds }),
    ...archiveRoutes(
      new ContainerArchives({
        log,
        containers,
        layers,
        tasks,
        archives,
        volumes,
        filesDir,
        placesRoot: deps.placesRoot,
        lookUpUser: (rootfs, user) => lookUpUser(rootfs, user, []),
        emit: (action, record) => hooks.emit(action, record),
      }),
    ),
    ...execRoutes({ containers, services, execs }),
    ...imageRoutes({
      images,
      layers,
      pulls: pulls.pulls,
      partials: partialBlobs,
      users,
      emit: (action, id, attributes) => emit('image', action, id, attributes),
      containers: new CommitSource(containers, (action, record, attributes) => hooks.emit(action, record, attributes)),
      importer: (request) =>
        importImage({ images, layers, pool: transferPool.pool, tmpDir: temporary.tmpDir }, request),
      architecture: host.architecture,
      layerBytes: (chainIds) => usage.layerBytes(chainIds),
    }),
    ...registryRoutes({ images, pushes, queries: pulls.queries }),
    ...networkRoutes({
      networks: network,
      containers,
      emit: (action, id, attributes) => emit('network', action, id, attributes),
    }),
    ...diskUsageRoutes({
      usage,
      images,
      containers,
      view,
      volumes,
      dataRoot,
      fsck: (repair) =>
        checkDataRoot({ dataRoot, pool, owners: () => presentOwners({ layers, images, volumes, containers }) }, repair),
    }),
    ...imageArchiveRoutes({
      images,
      layers,
      pool: archivePool,
      dataRoot,
      emit: (action, id, attributes) => emit('image', action, id, attributes),
    }),
    ...volumeRoutes({
      volumes,
      containers,
      emit: (action, name, attributes) => emit('volume', action, name, attributes),
    }),
    ...eventRoutes(events),
    ...engineConfigRoutes(live),
  ];
  return { routes, garbage };
}

function imageIdOf(images: FileImageStore, reference: string): string | undefined {
  try {
    return images.idOf(reference);
  } catch {
    // A malformed reference names no image: a filter by it selects nothing.
    return undefined;
  }
}

function isAncestor(images: FileImageStore, image: string, ancestor: string): boolean {
  for (let current = images.get(image as `sha256:${string}`), id = image; id !== '';) {
    if (id === ancestor) return true;
    id = current?.parent ?? '';
    current = id === '' ? undefined : images.get(id as `sha256:${string}`);
  }
  return false;
}
