/** The steps of a start. engine.ts says in which order they are taken. */
import { join } from 'node:path';
import type { LoadedRecords } from './actors/container/records.js';
import { removeAnonymousVolumes, removeNewVolumes } from './actors/container/mounts/mounts.js';
import { clearRoots } from './actors/container/mounts/root-place.js';
import { clearPlaces } from './actors/container/mounts/volume-use.js';
import { openStaleOutputs } from './actors/container/streams/stream-files.js';
import { rememberRecentExits } from './actors/engine/recent-exits.js';
import { recoverContainers } from './actors/engine/recovery.js';
import { type Change, untoldChanges } from './actors/engine/untold-changes.js';
import { commitNotes } from './composition/containers.js';
import type { EngineParts } from './composition/parts.js';
import { messageOf } from './errors/engine-error.js';
import { platformsOf } from './images/platform.js';
import { PREDEFINED } from './network/predefined.js';
import type { Logger } from './ports/logger.js';
import { removeTornWrites } from './sys/files/torn-writes.js';
import { isAtWork } from './sys/process/busy-memory.js';
import { releaseWhenIdle } from './sys/process/memory.js';

/** The daemon between start and end: its parts, and what each step leaves for later ones. */
export interface EngineLife {
  readonly parts: EngineParts;
  /** The records of containers that were found on disk. */
  loaded: LoadedRecords;
  /** True when the containers of an earlier run are known. */
  hasRecovered: boolean;
  failure: Error | undefined;
  /** Another daemon takes over, so containers stay. */
  handsOver: boolean;
  stopReleasing(): void;
  /** Resolves when the supervisor has been started. */
  supervisor: Promise<void>;
  /** Closes the outputs of an earlier daemon's execs, which nobody reads any more. */
  staleOutputs: Promise<() => void>;
}

export type Step = (life: EngineLife) => unknown;

export const startSupervisor: Step = (life) => {
  const { drivers, lives } = life.parts;
  life.staleOutputs = openStaleOutputs(lives.deps.ioRoot);
  return (life.supervisor = life.staleOutputs.then(() => drivers.supervisor.start()));
};

/** Does it while the start goes on. Containers that need the profile wait for it, and say why they do not get it. */
export const loadAppArmorProfile: Step = ({ parts: { base } }) => {
  base.appArmor?.prepare().catch((error: unknown) => base.log.error({}, messageOf(error)));
};

export const startNetworks: Step = ({ parts }) => parts.drivers.network.start();

export const loadVolumes: Step = async ({ parts: { base, drivers } }) => {
  const { removed, damaged } = await drivers.volumes.load();
  reportRemoved(base.log, 'volumes', removed);
  if (damaged.length > 0) base.log.error({ volumes: damaged }, 'volumes without a readable record are left alone');
};

export const loadContainerRecords: Step = async (life) => {
  life.loaded = await life.parts.drivers.records.load();
};

/** Images and the build cache need their layers, and what pulls have noted needs the images. */
export const loadImages: Step = async ({ parts: { base, drivers, transfers, builder }, supervisor }) => {
  const { layers, images } = drivers;
  if (layers.needsSupervisor) await supervisor;
  reportRemoved(base.log, 'layers', (await layers.load()).removed);
  reportRemoved(base.log, 'images', (await images.load()).removed);
  reportRemoved(base.log, 'build cache', (await builder.cache.load()).removed);
  await builder.received.load();
  await transfers.partialBlobs.load();
  await transfers.pulledBlobs?.load();
  await transfers.keptContent?.load();
  await transfers.blobRecords.load(
    new Set(
      images
        .list()
        .flatMap(platformsOf)
        .flatMap(({ config }) => config.rootfs.diff_ids),
    ),
  );
};

/** Plugins come back before the containers that use them; one that does not is tried again, and holds up nobody. */
export const bringBackPlugins: Step = async ({ parts: { base, plugins } }) => {
  const { removed, damaged } = await plugins.load();
  reportRemoved(base.log, 'plugins', removed);
  if (damaged.length > 0) base.log.error({ plugins: damaged }, 'plugins without a readable record are left alone');
};

/** Reads them while the start goes on: only waits for containers that nobody knows are held up. */
export const learnRecentExits: Step = ({ parts: { base, drivers, lives } }) => {
  rememberRecentExits(drivers.events, lives.containers).catch((error: unknown) =>
    base.log.error({ err: error }, 'exits of removed containers cannot be read from the events'),
  );
};

export const bringBackContainers: Step = async (life) => {
  const { base, drivers, lives } = life.parts;
  const { tasks, layers, network } = drivers;
  await recoverContainers({
    log: base.log,
    loaded: life.loaded,
    containers: lives.containers,
    ios: lives.ios,
    tasks,
    layers,
    ioRoot: lives.deps.ioRoot,
    network,
    events: drivers.events,
    emit: drivers.emit,
    hooks: lives.hooks,
    removeVolumes: (record) => removeAnonymousVolumes(lives.deps, record),
    removeNewVolumes: (draft) => removeNewVolumes(lives.deps, draft),
  });
  (await life.staleOutputs)();
  // All output that it kept for us is read, or kept by our own one.
  drivers.keeper.endEarlier();
  life.hasRecovered = true;
  warnOfHostUsers(life.parts);
};

/** Containers tell of what was theirs themselves. */
export const tellUntoldChanges: Step = async ({ parts: { base, drivers } }) => {
  const { network, volumes, events, emit } = drivers;
  const changes: readonly Change[] = [
    ...network
      .list()
      .filter(({ name }) => !PREDEFINED.has(name))
      .map(({ id, name, driver, created }) => networkChange('create', id, created, { name, type: driver })),
    ...network.removed().map(({ id, name, driver, removed }) => {
      return networkChange('destroy', id, removed, { name, type: driver });
    }),
    ...volumes.list().map(({ name, driver, createdAt }): Change => {
      return { type: 'volume', action: 'create', id: name, atMs: Date.parse(createdAt), attributes: { driver } };
    }),
    ...volumes.removed.map(({ name, driver, removedMs }): Change => {
      return { type: 'volume', action: 'destroy', id: name, atMs: removedMs, attributes: { driver } };
    }),
  ];
  const untold = await untoldChanges(events, changes);
  for (const { type, action, id, attributes } of untold) emit(type, action, id, attributes);
  void events
    .written()
    .then(() => volumes.clearRemoved())
    .catch((error: unknown) => base.log.error({ err: error }, 'what is left of removed volumes stays'));
};

function networkChange(
  action: Change['action'],
  id: string,
  at: string,
  attributes: Readonly<Record<string, string>>,
): Change {
  return { type: 'network', action, id, atMs: Date.parse(at), attributes };
}

/** They stay what they were created as, which somebody who turns on `userns-remap` may not expect. */
function warnOfHostUsers({ base, drivers, lives }: EngineParts): void {
  if (!base.shownMaps) return;
  const containers = lives.views
    .list()
    .filter(({ id, hostConfig }) => hostConfig.UsernsMode !== 'host' && !drivers.layers.mapsOf(id))
    .map(({ name }) => name.slice(1));
  if (containers.length > 0)
    base.log.warn({ containers }, 'userns-remap: these were created without it and keep the users of the host');
}

/** Does it while the start goes on, after containers that still run are taken over. */
export const endCommits: Step = ({ parts: { base, lives } }) => {
  const resume = async (id: string): Promise<void> => {
    if (lives.views.get(id)?.state.status !== 'paused') return;
    base.log.warn({ container: id }, 'resuming a container that an earlier daemon paused for a commit');
    await lives.containers.unpause(id);
  };
  void lives.containers
    .settled()
    .then(() => commitNotes(base.execRoot).settle(resume))
    .catch((error: unknown) => base.log.error({ err: error }, 'containers of broken commits stay paused'));
};

export const clearVolumePlaces: Step = async ({ parts }) => {
  await clearPlaces(parts.lives.deps.placesRoot);
  await clearRoots(parts.lives.deps);
};

/** Does it while the start goes on, after containers that still run have taken over their volumes. */
export const unmountIdleVolumes: Step = ({ parts: { base, drivers, lives } }) => {
  if (!drivers.volumes.hasIdle) return;
  void lives.containers
    .settled()
    .then(() => drivers.volumes.unmountIdle())
    .catch((error: unknown) => base.log.error({ err: error }, 'volumes stay mounted'));
};

export const collectLayers: Step = async ({ parts: { base, drivers } }) =>
  reportRemoved(base.log, 'layers', await drivers.layers.collect());

export const connectAuthorization: Step = ({ parts: { base, authorization } }) =>
  authorization.use(base.live.current.authorizationPlugins);

export const serveMetrics: Step = ({ parts }) => parts.drivers.metrics.listen();

export const openListeners: Step = ({ parts }) => parts.listeners.open(parts.front);

export const releaseMemoryWhenIdle: Step = (life) => {
  const { drivers, transfers } = life.parts;
  const isQueueEmpty = (): boolean => drivers.pool.queued === 0 && transfers.transferPool.pool.queued === 0;
  // A transfer waits for the main thread, too, unless it is so slow that the daemon rests.
  life.stopReleasing = releaseWhenIdle((rests) => isQueueEmpty() && (rests || !isAtWork()));
};

export const startGarbageCollection: Step = ({ parts }) => {
  parts.garbage.start();
  parts.builder.cacheGarbage.schedule();
};

/** Does it while the daemon serves, because nobody takes them for what they were to become. */
export const clearTornWrites: Step = ({ parts: { base, drivers } }) => {
  const { dataRoot, supervisorRoot, execRoot } = base;
  const within = (path: string): string => join(dataRoot, path);
  const parents = [drivers.records.root, ...['volumes', 'plugins', 'builder/history'].map(within)];
  removeTornWrites([dataRoot, supervisorRoot, execRoot, within('network')], parents).catch((error: unknown) =>
    base.log.error({ err: error }, 'what a killed daemon was writing is not removed'),
  );
};

export const keepReserve: Step = ({ parts }) => parts.base.reserve.keep();

function reportRemoved(log: Logger, what: string, removed: readonly string[]): void {
  if (removed.length > 0) log.warn({ removed }, `start-up removed unusable ${what}`);
}
