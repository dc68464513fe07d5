import { unavailable, type EngineError } from './engine-error.js';

/** Makes the answer to all that a cluster would have to do: this daemon has none, and clients know these words. */
export function notManager(): EngineError {
  return unavailable(
    'This node is not a swarm manager. ' +
      'Use "docker swarm init" or "docker swarm join" to connect this node to swarm and try again.',
    { code: 'NO_SWARM' },
  );
}
