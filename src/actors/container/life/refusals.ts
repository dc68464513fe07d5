/**
 * Commands in a state that does not allow them are refused with these errors, in the words that clients of the Engine
 * API know.
 */
import { conflict, EngineError } from '../../../errors/engine-error.js';
import type { ContainerRecord } from '../container.record.js';

export function notRunning(record: ContainerRecord): EngineError {
  return conflict(`container ${record.id} is not running`, { code: 'CONTAINER_NOT_RUNNING' });
}

export function notPaused(record: ContainerRecord): EngineError {
  return new EngineError('internal', `Container ${record.id} is not paused`, { code: 'NOT_PAUSED' });
}

export function alreadyPaused(record: ContainerRecord): EngineError {
  return conflict(`Container ${record.id} is already paused`);
}

export function pausedNoStart(): EngineError {
  return conflict('cannot start a paused container, try unpause instead');
}

export function removedNoStart(): EngineError {
  return conflict('container is marked for removal and cannot be started');
}

/** Refuses a removal that is not forced. */
export function stillUp({ name, state }: ContainerRecord): EngineError {
  const is =
    state.status === 'paused'
      ? 'paused and must be unpaused first'
      : `${state.status}: stop the container before removing or force remove`;
  return conflict(`cannot remove container "${name.slice(1)}": container is ${is}`);
}

export function removalUnderWay(record: ContainerRecord): EngineError {
  return conflict(`removal of container ${record.id} is already in progress`);
}
