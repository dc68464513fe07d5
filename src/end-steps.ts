/** The steps of an end, in this order: a part is ended when nobody uses it any more. */
import { isRunning } from './actors/container/container.record.js';
import { stopContainers } from './actors/engine/shutdown.js';
import type { EngineLife, Step } from './start-steps.js';
import { removeTemporaryFiles } from './sys/files/temporary-directory.js';

/** Replies that have begun may take this long after the containers have ended, and other requests longer. */
const LISTENER_CLOSE_MS = 2000;
/**
 * Connections to published ports get this where no next daemon goes on with them, because many short ones may wait for
 * one server in a container.
 */
const PORT_LIMITS = { quietMs: LISTENER_CLOSE_MS, limitMs: 10_000 };

const END: readonly (readonly [what: string, end: Step])[] = [
  ['memory', (life) => life.stopReleasing()],
  ['listeners', closeListeners],
  ['door of builds', ({ parts }) => parts.builder.door.close()],
  ['builds', ({ parts }) => parts.builder.builds.close()],
  ['containers', stopAll],
  ['ended tasks', ({ parts }) => parts.lives.departures.allOver()],
  ['replies', endReplies],
  ['plugins', stopPlugins],
  ['history of builds', ({ parts }) => parts.builder.door.settled()],
  ['collection of the build cache', ({ parts }) => parts.builder.cacheGarbage.close()],
  ['build cache', ({ parts }) => parts.builder.cache.close()],
  ['health checks', ({ parts }) => parts.lives.healthChecks.close()],
  ['garbage collection', ({ parts }) => parts.garbage.close()],
  ['images', ({ parts }) => parts.drivers.images.close()],
  // Before recovery it does not know the containers of an earlier run, which may still need the bridge.
  ['networks', ({ parts, hasRecovered }) => hasRecovered && parts.drivers.network.stop()],
  // Layers that are deleted now may be in the supervisor.
  ['layers', ({ parts }) => parts.drivers.layers.close()],
  ['supervisor of plugins', ({ parts }) => parts.drivers.pluginSupervisor.stop()],
  ['supervisor', (life) => life.parts.drivers.supervisor.stop({ leavesTasks: leavesTasks(life) })],
  ['output of containers', ({ parts }) => parts.lives.ios.leaveAll()],
  ['records', ({ parts }) => parts.drivers.records.close()],
  ['authorization plugins', ({ parts }) => parts.authorization.close()],
  ['events', ({ parts }) => parts.drivers.events.close()],
  ['kept replies', ({ parts }) => parts.drivers.keptReplies.close()],
  ['kept output', ({ parts }) => parts.drivers.keeper.close()],
  ['clients over TLS', ({ parts }) => parts.listeners.end(LISTENER_CLOSE_MS)],
  ['workers', closeWorkers],
  ['volume plugins', ({ parts }) => parts.drivers.volumePlugins.close()],
  ['log plugins', ({ parts }) => parts.drivers.logPlugins.close()],
  ['network plugins', ({ parts }) => parts.drivers.networkPlugins.close()],
  ['temporary files', ({ parts }) => removeTemporaryFiles(parts.base.temporary)],
  ['reserve', ({ parts }) => parts.base.reserve.close()],
  ['traces', ({ parts }) => parts.tracing.close()],
];

/**
 * Takes all steps. A part that cannot be ended is left to the next start, and the other parts are ended all the same.
 */
export async function endEngine(life: EngineLife): Promise<void> {
  for (const [what, end] of END) {
    try {
      await end(life);
    } catch (error) {
      life.parts.base.log.error({ err: error }, `${what}: not ended as they should be`);
    }
  }
}

/**
 * Lets nobody in any more. Clients that wait for containers that end now, or follow one, stay until they have; those of
 * containers that stay are sent to the next daemon. Published ports go on until the networks are ended, or are ended
 * now if nobody goes on with them.
 */
async function closeListeners(life: EngineLife): Promise<void> {
  const { listeners, drivers } = life.parts;
  if (!leavesContainers(life)) return listeners.rest(LISTENER_CLOSE_MS);
  await Promise.all([
    ...[listeners, drivers.metrics].map((it) => it.close(LISTENER_CLOSE_MS)),
    drivers.network.rest(PORT_LIMITS),
  ]);
}

/** Nothing that requests need has been ended yet. */
async function endReplies({ parts: { listeners, drivers } }: EngineLife): Promise<void> {
  await Promise.all([
    listeners.close(LISTENER_CLOSE_MS, { containersEnded: true }),
    drivers.metrics.close(LISTENER_CLOSE_MS),
  ]);
}

/** Stops all containers, but leaves them as they are after a failure and with `live-restore`. */
async function stopAll(life: EngineLife): Promise<void> {
  const { base, lives } = life.parts;
  const { live, log } = base;
  if (!life.hasRecovered || life.failure || leavesContainers(life)) return;
  await stopContainers(lives.containers, live.current.shutdownTimeoutSeconds, log);
}

/** Plugins end after the containers that use them, and stay like these. */
async function stopPlugins(life: EngineLife): Promise<void> {
  const { hasRecovered, failure, parts } = life;
  if (hasRecovered && !failure && !leavesContainers(life)) await parts.plugins.plugins.rest();
}

function leavesContainers({ parts, hasRecovered, failure, handsOver }: EngineLife): boolean {
  return hasRecovered && !failure && (handsOver || parts.base.live.current.liveRestore);
}

/** With `live-restore` the supervisor stays with what runs, so that no exit is missed until the next daemon. */
function leavesTasks(life: EngineLife): boolean {
  const { lives, plugins } = life.parts;
  return leavesContainers(life) && (lives.containers.list().some(isRunning) || plugins.plugins.isAnyRunning);
}

async function closeWorkers({ parts: { drivers, transfers, builder } }: EngineLife): Promise<void> {
  const { pool, promptPool, statsPool, archives, volumes } = drivers;
  const { transferPool, pushPool, archivePool, exportPool } = transfers;
  const { contexts, sources } = builder;
  const all = [
    pool,
    transferPool.pool,
    pushPool,
    archivePool,
    exportPool,
    promptPool,
    statsPool,
    archives,
    volumes,
    contexts,
    sources,
  ];
  await Promise.all(all.map((each) => each.close()));
}
