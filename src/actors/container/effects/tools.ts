/** What the effects of containers work with. */
import type { ContainerDeps } from '../deps.js';
import type { ContainerIoRegistry } from '../streams/container-io.js';

export interface EffectTools {
  readonly deps: ContainerDeps;
  readonly ios: ContainerIoRegistry;
}

/** An object with the key when there is a value, else without it: optional members are absent, never undefined. */
export function optional<K extends string, V>(key: K, value: V | undefined): { [P in K]?: V } {
  return value === undefined ? {} : ({ [key]: value } as { [P in K]?: V });
}

/** Logs what failed of several steps that are made whatever becomes of the others. */
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
