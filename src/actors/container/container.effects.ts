/** The container machine's effects over the drivers: each is in a file of its own in `effects/`. */
import type { ContainerEffects } from './container.effects.types.js';
import type { ContainerRecord } from './container.record.js';
import type { ContainerDeps } from './deps.js';
import { adoptContainer } from './effects/adopt.js';
import { createContainer } from './effects/create.js';
import { pauseContainer } from './effects/pause.js';
import { drainContainer, releaseContainer } from './effects/release.js';
import { removeContainer } from './effects/remove.js';
import { startContainer } from './effects/start.js';
import { stopContainer } from './effects/stop.js';
import type { EffectTools } from './effects/tools.js';
import type { Departures } from './life/departures.js';
import { unpause } from './life/ended-task.js';
import { rewire } from './network/networks.js';
import type { ContainerIoRegistry } from './streams/container-io.js';

/** Binds the effects to the drivers that they work with. */
export function createContainerEffects(
  deps: ContainerDeps,
  ios: ContainerIoRegistry,
  departures: Departures,
  emitKill: (record: ContainerRecord, signal: number) => void,
): ContainerEffects {
  const tools: EffectTools = { deps, ios, departures };
  const stopTools = { tasks: deps.tasks, emitKill };
  return {
    create: (record, signal, pace) => createContainer(tools, record, signal, pace),
    start: (record, signal, pace) => startContainer(tools, record, signal, pace),
    adopt: (input) => adoptContainer(tools, input),
    stop: (input, aborted, pace) => stopContainer(stopTools, input, aborted, pace),
    pause: ({ id }, signal) => pauseContainer(deps, id, signal),
    unpause: ({ id }) => unpause(deps.tasks, id),
    drain: (record) => drainContainer(tools, record),
    release: (input) => releaseContainer(tools, input),
    rewire: ({ record, change }) => rewire(deps, record, change),
    remove: (input, pace) => removeContainer(tools, input, pace),
    save: (record) => deps.records.save(record),
  };
}
