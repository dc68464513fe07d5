/** The collections of actors, by the names that they have below the root actor and in the state dump. */
import type { AnyActorLogic, AnyActorRef } from 'xstate';
import type { Builder } from './builder.js';
import type { Containers } from './containers.js';
import type { PluginParts } from './plugins.js';
import type { Transfers } from './transfers.js';

/** A room's public face, which has one collection. */
export interface HasCollection {
  readonly collection: { readonly logic: AnyActorLogic; readonly children: ReadonlyMap<string, AnyActorRef> };
  /** Gives the collection the way to its events; called once, when the root actor runs. */
  connect(send: (event: unknown) => void): void;
}

export function collectionsOf(
  { containers, execs }: Containers,
  { pulls }: Transfers,
  { builds }: Builder,
  { plugins }: PluginParts,
): Readonly<Record<string, HasCollection>> {
  return {
    containers,
    execs,
    sessions: pulls.sessions,
    pulls: pulls.pulls,
    builds,
    plugins,
  };
}
