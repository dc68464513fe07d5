/** Composes everything that the API serves, and the views and services behind it. */
import { statfs } from 'node:fs/promises';
import { ContainerArchives } from '../actors/container/mounts/archives.js';
import { CommitSource } from '../actors/container/mounts/commit-source.js';
import { type ContainerRecord, containersPerImage, imagesOf, isRunning } from '../actors/container/container.record.js';
import { filesOwner } from '../actors/container/mounts/files.js';
import { shownLinks } from '../actors/container/network/legacy-links.js';
import type { ContainerRecords } from '../actors/container/records.js';
import type { ContainerViews } from '../actors/container/views.js';
import { presentOwners } from '../actors/engine/present-owners.js';
import { readProcessFigures } from '../actors/engine/process-figures.js';
import { SystemService } from '../actors/engine/system.js';
import { EarlierTold } from '../actors/engine/told-events.js';
import type { ViewContext } from '../http/api/container-view.js';
import type { Route } from '../http/route.js';
import { absentPartRoutes } from '../http/routes/absent-parts.js';
import { archiveRoutes } from '../http/routes/archive.js';
import { containerStreamRoutes } from '../http/routes/container-streams.js';
import { openRemoteContext } from '../build/sources/remote-context.js';
import { buildCacheRoutes } from '../http/routes/build-cache.js';
import { buildRoutes } from '../http/routes/build.js';
import { containerRoutes } from '../http/routes/containers.js';
import { diskUsageRoutes } from '../http/routes/disk-usage.js';
import { engineConfigRoutes } from '../http/routes/engine-config.js';
import { eventRoutes } from '../http/routes/events.js';
import { execRoutes } from '../http/routes/exec.js';
import { imageArchiveRoutes } from '../http/routes/image-archives.js';
import { imageRoutes, type ImageRouteDeps } from '../http/routes/images.js';
import { metricsRoutes } from '../http/routes/metrics.js';
import { networkRoutes } from '../http/routes/networks.js';
import { pingRoutes } from '../http/routes/ping.js';
import { pluginRoutes } from '../http/routes/plugins.js';
import { registryRoutes } from '../http/routes/registry.js';
import { statsRoutes } from '../http/routes/stats.js';
import { systemRoutes } from '../http/routes/system.js';
import { volumeRoutes } from '../http/routes/volumes.js';
import { ImageGarbage } from '../images/garbage.js';
import { importImage } from '../images/import.js';
import type { FileImageStore } from '../images/store.js';
import { checkDataRoot, type FsckReport } from '../inventory/fsck.js';
import type { Owners } from '../inventory/orphans.js';
import { listCdiDevices } from '../runtime/cdi.js';
import { runtimeFeatures } from '../runtime/runtime-features.js';
import { lookUpUser } from '../runtime/user-lookup.js';
import type { ImageUsers } from '../images/removal.js';
import { BUILD } from '../version.js';
import type { Base } from './base.js';
import type { Builder } from './builder.js';
import { commitNotes, type Containers } from './containers.js';
import type { Drivers } from './drivers.js';
import { hostWarnings, otherDriverWarnings } from './host-warnings.js';
import type { PluginParts } from './plugins.js';
import type { Transfers } from './transfers.js';

/** Makes the routes. `alerts` returns the warnings of listeners for `info`. */
export function composeRoutes(
  base: Base,
  drivers: Drivers,
  lives: Containers & { readonly builder: Builder; readonly plugins: PluginParts },
  transfers: Transfers,
  alerts: () => readonly string[],
): { readonly routes: Route[]; readonly garbage: ImageGarbage } {
  const { live, dataRoot } = base;
  const { layers, images, network, volumes, events, usage, emit } = drivers;
  const { containers } = lives;
  const users: ImageUsers = (id) =>
    containers
      .list()
      .filter((record) => imagesOf(record).includes(id))
      .map((record) => ({ id: record.id, running: isRunning(record), manifest: record.imageManifest?.digest }));
  const garbage = composeGarbage(base, drivers, lives.builder, transfers, users);
  const view = viewContext(drivers, lives);
  const routes = [
    ...pingRoutes({ swarmState: () => 'inactive' }),
    ...systemRoutes(systemService(base, drivers, lives, alerts)),
    ...absentPartRoutes(),
    ...buildRoutes({
      engine: lives.builder.builds,
      buildKit: lives.builder.door.classic,
      unpack: (source) => lives.builder.contexts.unpack(source),
      fetch: (order, signal) => openRemoteContext(lives.builder.sources, order, signal),
    }),
    ...buildCacheRoutes(lives.builder.builds),
    ...lives.builder.door.routes(),
    ...allContainerRoutes(base, drivers, lives, view),
    ...imageRoutes(imageDeps(base, drivers, lives, transfers, users)),
    ...registryRoutes({ images, pushes: transfers.pushes, queries: transfers.pulls.queries }),
    ...networkRoutes({ networks: network, containers, emit: (...event) => emit('network', ...event) }),
    ...diskUsageRoutes({
      usage,
      images,
      contentBytes: (image) => transfers.keptContent?.contentBytes(image),
      containers,
      view,
      volumes,
      dataRoot,
      builds: lives.builder.builds,
      cacheLayers: () => lives.builder.cache.ownLayers(),
      fsck: (repair) => checkOwnRoot(base, drivers, lives, repair),
    }),
    ...imageArchiveRoutes({
      images,
      layers,
      kept: transfers.keptContent,
      blobDir: transfers.keptContent && base.temporary.tmpDir,
      pool: transfers.archivePool,
      dataRoot,
      emit: (...event) => emit('image', ...event),
    }),
    ...volumeRoutes({ volumes, containers, emit: (...event) => emit('volume', ...event) }),
    ...pluginRoutes(lives.plugins),
    ...eventRoutes(events),
    ...engineConfigRoutes(live),
    ...metricsRoutes(drivers.metrics),
  ];
  return { routes, garbage };
}

function checkOwnRoot(
  { dataRoot }: Base,
  { layers, images, volumes, pool }: Drivers,
  { containers, builder, plugins }: Containers & { readonly builder: Builder; readonly plugins: PluginParts },
  repair: boolean,
): Promise<FsckReport> {
  const owners = (): Owners =>
    presentOwners({ layers, images, volumes, containers, plugins: plugins.plugins, cache: builder.cache });
  return checkDataRoot({ dataRoot, driver: layers.place, pool, owners }, repair);
}

function systemService(
  { live, facts, host, settings, dataRoot }: Base,
  { layers, images, volumePlugins, networkPlugins, logPlugins, tasks, events }: Drivers,
  { containers }: Containers,
  alerts: () => readonly string[],
): SystemService {
  const otherDrivers = otherDriverWarnings(dataRoot, layers.place);
  return new SystemService({
    build: BUILD,
    figures: readProcessFigures,
    host,
    containers,
    images,
    layers,
    settings: settings.shown,
    components: () => settings.components(tasks),
    runtimeFeatures,
    warnings: () => [...hostWarnings(facts, live.fixed), ...otherDrivers, ...alerts()],
    devices: () => listCdiDevices(settings.shown().cdiSpecDirs),
    listeners: () => events.subscribers,
    plugins: { volume: () => volumePlugins.known, network: () => networkPlugins.known, log: () => logPlugins.names() },
  });
}

function composeGarbage(
  { live, dataRoot, log }: Base,
  { images, layers, usage, emit }: Drivers,
  { cache }: Builder,
  { pulledBlobs }: Transfers,
  users: ImageUsers,
): ImageGarbage {
  const { imageGcHighPercent, imageGcLowPercent, imageGcMinAgeSeconds } = live.fixed;
  return new ImageGarbage({
    dataRoot,
    rules: {
      highPercent: imageGcHighPercent,
      lowPercent: imageGcLowPercent,
      minAgeSeconds: imageGcMinAgeSeconds,
    },
    store: images,
    users,
    emit: (...event) => emit('image', ...event),
    layerBytes: (chainIds) => usage.layerBytes(chainIds),
    dropBlobs: async () => (await pulledBlobs?.clear()) ?? 0,
    pruneCache: async ({ bytes, minAgeSeconds }) => {
      const { bavail, bsize } = await statfs(dataRoot);
      const { reclaimed } = await cache.prune({
        all: false,
        keepDurationMs: minAgeSeconds * 1000,
        reservedSpace: 0,
        maxUsedSpace: 0,
        minFreeSpace: bavail * bsize + bytes,
        selects: () => true,
      });
      return reclaimed;
    },
    reclaimed: () => layers.reclaimed(),
    log,
  });
}

/** Returns what the JSON of a container shows besides its record. */
function viewContext({ images, layers, network, records }: Drivers, { views, execs, ios }: Containers): ViewContext {
  return {
    links: (record) => shownLinks(record, (id) => views.get(id)),
    linkNames: (id) => views.linkNames(id),
    imageStillNamed: (record) => images.stillNames(record.config.Image, record.image),
    graphData: (id) => ({ Name: layers.driver, Data: layers.graphData(id) }),
    filesDir: filesDirectories(records, views),
    sandboxKey: ({ id, hostConfig }) =>
      hostConfig.NetworkMode === 'host' ? '/proc/1/ns/net' : network.sandboxPath(id),
    execIds: (id) => execs.idsOf(id),
    droppedLines: (id) => ios.droppedLines(id),
  };
}

function filesDirectories(records: ContainerRecords, views: ContainerViews): (record: ContainerRecord) => string {
  return (record) => records.dir(filesOwner(record, (id) => views.get(id)));
}

function allContainerRoutes(
  { log, settings }: Base,
  { images, layers, tasks, archives, volumes, logs, records, events }: Drivers,
  { views, deps, ios, hooks, containers, services, execs, statsFeeds }: Containers,
  view: ViewContext,
): Route[] {
  return [
    ...containerRoutes({
      containers,
      services,
      view,
      earlier: new EarlierTold(events),
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
        filesDir: filesDirectories(records, views),
        placesRoot: deps.placesRoot,
        lookUpUser: (rootfs, user) => lookUpUser(rootfs, user, []),
        emit: (action, record) => hooks.emit(action, record),
      }),
    ),
    ...execRoutes({ containers, services, execs }),
  ];
}

function imageDeps(
  { host, settings, temporary, execRoot }: Base,
  { images, layers, usage, emit, events }: Drivers,
  { containers, hooks }: Containers,
  { pulls, partialBlobs, pulledBlobs, transferPool, keptContent }: Transfers,
  users: ImageUsers,
): ImageRouteDeps {
  return {
    images,
    layers,
    pulls: pulls.pulls,
    partials: partialBlobs,
    pulledBlobs,
    users,
    countUsers: () => containersPerImage(containers.list()),
    earlier: new EarlierTold(events),
    emit: (...event) => emit('image', ...event),
    containers: new CommitSource(
      containers,
      (action, record, attributes) => hooks.emit(action, record, attributes),
      settings.cgroupDriver !== 'none',
      commitNotes(execRoot),
    ),
    importer: (request) => importImage({ images, layers, pool: transferPool.pool, tmpDir: temporary.tmpDir }, request),
    architecture: host.architecture,
    layerBytes: (chainIds) => usage.layerBytes(chainIds),
    contentBytes: (image) => keptContent?.contentBytes(image),
    dropContent: async (image) => keptContent?.dropPlatform(image),
  };
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
