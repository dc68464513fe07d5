/** Puts drivers, actors and routes together (composition/), starts them and ends them. */
import { createActor } from 'xstate';
import type { LoadedRecords } from './actors/container/records.js';
import { allDone } from './actors/container/life/undo.js';
import { clearPlaces } from './actors/container/mounts/volume-use.js';
import { ContainerViews } from './actors/container/views.js';
import { createEngineMachine } from './actors/engine/engine.machine.js';
import { rememberRecentExits } from './actors/engine/recent-exits.js';
import { recoverContainers } from './actors/engine/recovery.js';
import { stopContainers } from './actors/engine/shutdown.js';
import { describeCollections } from './actors/kit/describe.js';
import { ApiListeners } from './api-listeners.js';
import { type Roots, makeBase } from './composition/base.js';
import { composeContainers } from './composition/containers.js';
import { openDrivers } from './composition/drivers.js';
import { composeRoutes } from './composition/routes.js';
import { composeTransfers } from './composition/transfers.js';
import type { LiveConfig, ReloadResult } from './config/live-config.js';
import { messageOf } from './errors/engine-error.js';
import { AuditLog } from './http/audit.js';
import { createFront } from './http/front.js';
import { AuthorizationPlugins } from './plugins/authorization-plugins.js';
import type { Logger } from './ports/logger.js';
import type { ServiceManager } from './service-manager.js';
import { releaseWhenIdle } from './sys/process/memory.js';
import { removeTemporaryFiles } from './sys/files/temporary-directory.js';
import { PRODUCT_VERSION } from './version.js';
import { createWorkerPool } from './workers/pool.js';

/** How long replies in flight may take once the daemon is asked to stop. */
const LISTENER_CLOSE_MS = 2000;

export interface Engine {
  /** Resolves when the daemon has ended; with the error when it could not start. */
  readonly ended: Promise<Error | undefined>;
  readonly addresses: () => readonly string[];
  /** Returns the state of the daemon's parts, for people who look into a running daemon. */
  state(): Readonly<Record<string, unknown>>;
  stop(): void;
}

/**
 * Puts the daemon together and starts it. `onServing` is called when the listeners are open.
 * @throws EngineError for what is found to be wrong before anything was started.
 */
export async function startEngine(
  live: LiveConfig,
  roots: Roots,
  manager: ServiceManager,
  log: Logger,
  onServing: () => void,
): Promise<Engine> {
  const config = live.fixed;
  const listeners = new ApiListeners(live, manager, log);
  const base = await makeBase(live, roots, log);
  const { host, settings, temporary } = base;
  const views = new ContainerViews();
  const drivers = await openDrivers(base, () => views.list());
  const {
    pool,
    events,
    metrics,
    emit,
    supervisor,
    tasks,
    layers,
    images,
    network,
    records,
    volumes,
    volumePlugins,
    networkPlugins,
    archives,
  } = drivers;
  const lives = await composeContainers(base, drivers, views);
  const { deps, containers, execs, healthChecks } = lives;
  const transfers = composeTransfers(base, drivers);
  const { pulls, pushes, partialBlobs, blobRecords, transferPool, pushPool, archivePool } = transfers;
  const { routes, garbage } = composeRoutes(base, drivers, lives, transfers, () => listeners.warnings);
  const authorization = new AuthorizationPlugins();
  // Parsing has a thread of its own: a client waits for its request, while the other threads are busy as long as a
  // layer takes.
  const bodyPool = createWorkerPool({ maxThreads: 1 });
  const front = createFront({
    authorizer: authorization,
    audit: new AuditLog(log, () => live.current.features['audit'] === true),
    product: { version: PRODUCT_VERSION, experimental: config.experimental },
    logger: log,
    ...(metrics.requests === undefined ? {} : { observer: metrics.requests }),
    jsonParser: (text) => bodyPool.run('parse-json', text, { transferList: [text.bytes.buffer as ArrayBuffer] }),
    routes,
  });
  live.onReload((result) => {
    authorization
      .use(live.current.authorizationPlugins)
      .catch((error: unknown) => log.error({}, `${messageOf(error)}; it denies every request until it answers`));
    if (result.ok)
      emit('daemon', 'reload', settings.shown().id, {
        name: host.hostname,
        ...reloadOutcome(result),
        ...live.reloadableSettings(),
      });
  });
  let stopReleasing = (): void => undefined;
  let loaded: LoadedRecords = { records: [], removed: [], damaged: [] };
  let hasRecovered = false;
  let failure: Error | undefined;
  const close = async (): Promise<void> => {
    const stopsContainers = hasRecovered && !failure && !live.current.liveRestore;
    const steps: readonly (readonly [what: string, run: () => unknown])[] = [
      ['listeners', () => Promise.all([listeners, metrics].map((listener) => listener.close(LISTENER_CLOSE_MS)))],
      ['containers', () => stopsContainers && stopContainers(containers, live.current.shutdownTimeoutSeconds, log)],
      ['garbage collection', () => garbage.close()],
      // Before recovery it does not know the containers of an earlier run, which may still need the bridge.
      ['networks', () => hasRecovered && network.stop()],
      ['supervisor', () => supervisor.stop()],
      ['authorization plugins', () => authorization.close()],
      ['events', () => events.close()],
      ['layers', () => layers.close()],
      [
        'workers',
        () =>
          Promise.all(
            [pool, transferPool.pool, pushPool, archivePool, bodyPool, archives, volumes].map((each) => each.close()),
          ),
      ],
      ['volume plugins', () => volumePlugins.close()],
      ['network plugins', () => networkPlugins.close()],
      ['temporary files', () => removeTemporaryFiles(temporary)],
      ['reserve', () => roots.reserve.close()],
    ];
    // A part that cannot be ended is left to the next start; the other parts must not be left with it.
    for (const [what, run] of steps) {
      try {
        await run();
      } catch (error) {
        log.error({ err: error }, `${what}: not ended as they should be`);
      }
    }
  };

  let finish: (error: Error | undefined) => void = () => undefined;
  const ended = new Promise<Error | undefined>((resolve) => (finish = resolve));
  const root = createActor(
    createEngineMachine(
      {
        boot: async () => {
          await allDone([
            supervisor.start(),
            network.start(),
            volumes.load().then(({ removed, damaged }) => {
              report(log, 'volumes', removed);
              if (damaged.length > 0)
                log.error({ volumes: damaged }, 'volumes without a readable record are left alone');
            }),
            records.load().then((found) => (loaded = found)),
            layers.load().then(async ({ removed }) => {
              report(log, 'layers', removed);
              report(log, 'images', (await images.load()).removed);
              await partialBlobs.load();
              await blobRecords.load(new Set(images.list().flatMap(({ config }) => config.rootfs.diff_ids)));
            }),
          ]);
        },
        recover: async () => {
          rememberRecentExits(events, containers).catch((error: unknown) =>
            log.error({ err: error }, 'exits of removed containers cannot be read from the events'),
          );
          await recoverContainers({ log, loaded, containers, tasks, layers, ioRoot: deps.ioRoot, network });
          hasRecovered = true;
          await clearPlaces(deps.placesRoot);
          // Containers that still run have taken over theirs by then.
          if (volumes.hasIdle)
            void containers
              .settled()
              .then(() => volumes.unmountIdle())
              .catch((error: unknown) => log.error({ err: error }, 'volumes stay mounted'));
          report(log, 'layers', await layers.collect());
        },
        open: async () => {
          await authorization.use(live.current.authorizationPlugins);
          await metrics.listen();
          await listeners.open(front);
        },
        // Nothing depends on the supervisor while it is started, and it may be the part that hangs.
        interruptBoot: () =>
          void supervisor.stop().catch((error: unknown) => log.error({ err: error }, 'supervisor not ended')),
        drain: async () => {
          stopReleasing();
          await close();
        },
        onServing: () => {
          stopReleasing = releaseWhenIdle(() => pool.queued === 0 && transferPool.pool.queued === 0);
          garbage.start();
          roots.reserve.keep();
          onServing();
        },
        onFailed: (error) => {
          failure ??= error instanceof Error ? error : new Error(String(error));
        },
        onStopped: () => undefined,
      },
      {
        containers: containers.collection.logic,
        execs: execs.collection.logic,
        healthChecks: healthChecks.collection.logic,
        sessions: pulls.sessions.collection.logic,
        transfers: pulls.transfers.collection.logic,
        pulls: pulls.pulls.collection.logic,
        pushes: pushes.collection.logic,
      },
    ),
  );
  root.subscribe({
    complete: () => finish(failure),
    error: (error) => finish(error instanceof Error ? error : new Error(String(error))),
  });
  root.start();
  const sendTo = (name: string) => {
    const actor = root.system.get(name) as { send(event: unknown): void };
    return (event: unknown): void => actor.send(event);
  };
  containers.connect(sendTo('containers'));
  execs.connect(sendTo('execs'));
  healthChecks.connect(sendTo('healthChecks'));
  pulls.sessions.connect(sendTo('sessions'));
  pulls.transfers.connect(sendTo('transfers'));
  pulls.pulls.connect(sendTo('pulls'));
  pushes.connect(sendTo('pushes'));
  const state = (): Readonly<Record<string, unknown>> => ({
    phase: root.getSnapshot().value,
    requests: listeners.inFlight(),
    asks: base.replies.size,
    eventSubscribers: events.subscribers,
    queues: {
      tasks: pool.queued,
      transfers: transferPool.pool.queued,
      pushes: pushPool.queued,
      archives: archivePool.queued,
    },
    supervisor: { pid: supervisor.pid },
    actors: describeCollections(base.replies, {
      containers: containers.collection.children,
      execs: execs.collection.children,
      healthChecks: healthChecks.collection.children,
      sessions: pulls.sessions.collection.children,
      transfers: pulls.transfers.collection.children,
      pulls: pulls.pulls.collection.children,
      pushes: pushes.collection.children,
    }),
  });
  return { ended, addresses: () => listeners.addresses, state, stop: () => root.send({ type: 'engine.stop' }) };
}

/** Keys by what the reload did to them, for its event. */
function reloadOutcome({ entries }: ReloadResult): Record<string, string> {
  const keys = (...verdicts: readonly string[]): string =>
    entries.flatMap(({ key, verdict }) => (verdicts.includes(verdict) ? [key] : [])).join(',');
  return Object.fromEntries(
    Object.entries({
      applied: keys('applied'),
      removed: keys('removed'),
      'needs-restart': keys('needs-restart'),
    }).filter(([, value]) => value !== ''),
  );
}

function report(log: Logger, what: string, removed: readonly string[]): void {
  if (removed.length > 0) log.warn({ removed }, `start-up removed unusable ${what}`);
}
