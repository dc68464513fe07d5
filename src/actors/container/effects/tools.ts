/** The effects of containers work with these tools. */
import type { ContainerDeps } from '../deps.js';
import type { Departures } from '../life/departures.js';
import type { ContainerIoRegistry } from '../streams/container-io.js';

export interface EffectTools {
  readonly deps: ContainerDeps;
  readonly ios: ContainerIoRegistry;
  readonly departures: Departures;
}

/**
 * Returns an object that has the key only when there is a value, because optional members are absent, never undefined.
 */
export function optional<K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } {
  return value === undefined ? {} : ({ [key]: value } as { [P in K]?: V });
}

/** Logs the failures of several steps, each of which was made whatever became of the others. */
export function logFailures(
  { log }: Pick<ContainerDeps, 'log'>,
  id: string,
  what: string,
  results: readonly PromiseSettledResult<unknown>[],
): void {
  for (const result of results) {
    if (result.status === 'rejected') log.error({ err: result.reason, container: id }, what);
  }
}
