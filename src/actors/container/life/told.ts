/**
 * Events of a container that an earlier daemon told. The log has each event before anybody sees it, so what it does not
 * have was told to nobody.
 */
import type { EventType } from '../../../ports/events.js';
import type { Endpoint } from '../../../ports/network.js';
import type { ContainerRecord } from '../container.record.js';

export interface ToldEvent {
  readonly timeMs: number;
  readonly attributes: Readonly<Record<string, string>>;
}

/** The last events of a run by `toldKey`. One that was undone by its opposite is not among them. */
export type ToldEvents = ReadonlyMap<string, ToldEvent>;

export const NOTHING_TOLD: ToldEvents = new Map();

const OPPOSITES = new Map([
  ['start', 'die'],
  ['die', 'start'],
  ['connect', 'disconnect'],
  ['disconnect', 'connect'],
  ['mount', 'unmount'],
  ['unmount', 'mount'],
]);

/** Returns the name of an event of a container, of one of its networks or of one of its volumes. */
export function toldKey(type: EventType, action: string, id: string): string {
  return `${type} ${action} ${id}`;
}

/** Adds an event of a container to the earlier ones. */
export function noteTold(
  told: Map<string, ToldEvent>,
  [type, action, id]: readonly [type: EventType, action: string, id: string],
  event: ToldEvent,
): void {
  const opposite = OPPOSITES.get(action);
  if (opposite !== undefined) told.delete(toldKey(type, opposite, id));
  told.set(toldKey(type, action, id), event);
}

/** Returns those since a time, as records have it. */
export function toldSince(told: ToldEvents, time: string): ToldEvents {
  const sinceMs = Date.parse(time);
  return new Map([...told].filter(([, { timeMs }]) => timeMs >= sinceMs));
}

/**
 * Returns the networks that a container has joined as was told, and not left, but for those that its record knows, each
 * with what was told of it. The daemon died before they were written down.
 */
export function unrecordedJoins(
  told: ToldEvents,
  { networks }: Pick<ContainerRecord, 'networks'>,
): (readonly [id: string, attributes: ToldEvent['attributes']])[] {
  const joined = toldKey('network', 'connect', '');
  const known = new Set(Object.values(networks).map(({ endpoint }) => endpoint?.networkId));
  return [...told]
    .filter(([key]) => key.startsWith(joined) && !known.has(key.slice(joined.length)))
    .map(([key, { attributes }]) => [key.slice(joined.length), attributes]);
}

interface UntoldNetwork {
  readonly action: 'connect' | 'disconnect';
  readonly network: Pick<Endpoint, 'networkId' | 'networkName'>;
}

/**
 * Returns the networks that a container has joined or was leaving untold, because the daemon died just then.
 * @param knownSinceMs all events since this time are known; what is older was told.
 */
export function untoldNetworks(
  { networks }: Pick<ContainerRecord, 'networks'>,
  told: ToldEvents,
  knownSinceMs: number,
): UntoldNetwork[] {
  const isUntold = (time: string, ...keys: readonly string[]): boolean => {
    const atMs = Date.parse(time);
    return atMs >= knownSinceMs && keys.every((key) => (told.get(key)?.timeMs ?? -Infinity) < atMs);
  };
  const changes: UntoldNetwork[] = [];
  for (const { endpoint, joined, leaving } of Object.values(networks)) {
    const network = endpoint ?? leaving;
    if (network === undefined) continue;
    const [connect = '', disconnect = ''] = ['connect', 'disconnect'].map((action) =>
      toldKey('network', action, network.networkId),
    );
    if (leaving !== undefined && isUntold(leaving.since, disconnect)) changes.push({ action: 'disconnect', network });
    if (endpoint !== undefined && joined !== undefined && isUntold(joined, connect, disconnect))
      changes.push({ action: 'connect', network });
  }
  return changes;
}

/** Returns whether any network was joined or left since a time. */
export function hasMovedSince({ networks }: Pick<ContainerRecord, 'networks'>, sinceMs: number): boolean {
  return Object.values(networks).some(({ joined, leaving }) => Date.parse(leaving?.since ?? joined ?? '') >= sinceMs);
}
