/** Starts the daemon's parts (composition/), runs them under the root actor, and ends them. */
import { createActor, type AnyActorRef } from 'xstate';
import { allDone } from './actors/container/life/undo.js';
import { createEngineMachine } from './actors/engine/engine.machine.js';
import { describeCollections } from './actors/kit/describe.js';
import type { Roots } from './composition/roots.js';
import { collectionsOf } from './composition/collections.js';
import { composeParts, type EngineParts } from './composition/parts.js';
import type { LiveConfig } from './config/live-config.js';
import { endEngine } from './end-steps.js';
import type { Logger } from './ports/logger.js';
import type { ServiceManager } from './service-manager.js';
import * as steps from './start-steps.js';
import type { EngineLife, Step } from './start-steps.js';

/** First the drivers are started and the disk is read. These steps go on at the same time. */
const BOOT: readonly Step[] = [
  steps.loadAppArmorProfile,
  steps.startSupervisor,
  steps.startNetworks,
  steps.loadVolumes,
  steps.loadContainerRecords,
  steps.loadImages,
];

/** Then what was there before is brought back. These steps go on one after the other. */
const RECOVER: readonly Step[] = [
  steps.bringBackPlugins,
  steps.learnRecentExits,
  steps.tellUntoldChanges,
  steps.bringBackContainers,
  steps.endCommits,
  steps.clearVolumePlaces,
  steps.unmountIdleVolumes,
  steps.collectLayers,
];

/** Then the daemon can be reached. These steps go on one after the other. */
const OPEN: readonly Step[] = [steps.connectAuthorization, steps.serveMetrics, steps.openListeners];

/** At last begins what the daemon does beside its requests. */
const SERVE: readonly Step[] = [
  steps.releaseMemoryWhenIdle,
  steps.startGarbageCollection,
  steps.clearTornWrites,
  steps.keepReserve,
];

export interface Engine {
  /** Resolves when the daemon has ended: with the error if it could not start. */
  readonly ended: Promise<Error | undefined>;
  readonly addresses: () => readonly string[];
  /** Returns the state of the daemon's parts, for people who look into a running daemon. */
  state(): Readonly<Record<string, unknown>>;
  /** Ends the daemon; containers stay for a successor if there is one, whatever the configuration says. */
  stop(options?: { readonly handsOver: boolean }): void;
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
  const parts = await composeParts(live, roots, manager, log);
  const life: EngineLife = {
    parts,
    loaded: { records: [], removed: [], retired: [], withVolumes: [], drafts: [], damaged: [] },
    hasRecovered: false,
    failure: undefined,
    handsOver: false,
    stopReleasing: () => undefined,
    supervisor: Promise.resolve(),
    staleOutputs: Promise.resolve(() => undefined),
  };
  const collections = collectionsOf(parts.lives, parts.transfers, parts.builder, parts.plugins);
  const root = createActor(
    createEngineMachine(
      {
        boot: async () => void (await allDone(BOOT.map(async (step) => step(life)))),
        recover: () => inOrder(RECOVER, life),
        open: () => inOrder(OPEN, life),
        // Nothing depends on the supervisor while it is started, and it may be the part that hangs.
        interruptBoot: () =>
          void parts.drivers.supervisor
            .stop()
            .catch((error: unknown) => log.error({ err: error }, 'supervisor not ended')),
        drain: () => endEngine(life),
        onServing: () => {
          for (const step of SERVE) step(life);
          onServing();
        },
        onFailed: (error) => (life.failure ??= asError(error)),
      },
      Object.fromEntries(Object.entries(collections).map(([name, { collection }]) => [name, collection.logic])),
    ),
  );
  const ended = new Promise<Error | undefined>((resolve) => {
    root.subscribe({ complete: () => resolve(life.failure), error: (error) => resolve(asError(error)) });
  });
  root.start();
  for (const [name, room] of Object.entries(collections)) {
    const actor: AnyActorRef = root.system.get(name);
    room.connect((event) => actor.send(event));
  }
  return {
    ended,
    addresses: () => parts.listeners.addresses,
    state: () => ({ phase: root.getSnapshot().value, ...stateOf(parts) }),
    stop: ({ handsOver } = { handsOver: false }) => {
      life.handsOver ||= handsOver;
      root.send({ type: 'engine.stop' });
    },
  };
}

async function inOrder(order: readonly Step[], life: EngineLife): Promise<void> {
  for (const step of order) await step(life);
}

function stateOf(parts: EngineParts): Readonly<Record<string, unknown>> {
  const { base, drivers, lives, transfers, builder, plugins, listeners } = parts;
  const { pool, events, supervisor } = drivers;
  const { transferPool, pushPool, archivePool, pulls, pushes } = transfers;
  const children = Object.entries(collectionsOf(lives, transfers, builder, plugins)).map(
    ([name, { collection }]) => [name, collection.children] as const,
  );
  return {
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
    actors: {
      ...describeCollections(base.replies, Object.fromEntries(children)),
      healthChecks: lives.healthChecks.describe(),
      pulls: pulls.pulls.describe(),
      transfers: pulls.transfers.describe(),
      pushes: pushes.describe(),
    },
  };
}

function asError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
