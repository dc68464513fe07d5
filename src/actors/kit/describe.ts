/**
 * Describes what actors are doing, for people who look into a running daemon: it gives states and names, never the data
 * that actors hold.
 */
import type { AnyActorRef } from 'xstate';
import type { Replies } from './replies.js';

export interface ActorSummary {
  readonly id: string;
  /** The state of a machine, else whether the actor is active. */
  readonly state: unknown;
  /** Effects that are under way. */
  readonly effects: readonly string[];
  /** Commands that it has not answered yet. */
  readonly unanswered: number;
}

interface MachineSnapshot {
  readonly status: string;
  readonly value?: unknown;
  readonly children?: Readonly<Record<string, unknown>>;
}

/** Describes the actors of each collection, by its name. */
export function describeCollections(
  replies: Replies,
  collections: Readonly<Record<string, ReadonlyMap<string, AnyActorRef>>>,
): Readonly<Record<string, readonly ActorSummary[]>> {
  const described = Object.entries(collections).map(([name, children]) => [
    name,
    [...children].map(([id, actor]) => describeActor(shownId(id), actor, replies)),
  ]);
  return Object.fromEntries(described) as Record<string, readonly ActorSummary[]>;
}

/** Returns an id without its hash, which ends names of sessions and jobs and is also made from credentials. */
export function shownId(id: string): string {
  const end = id.lastIndexOf('.');
  return end === -1 ? id : id.slice(0, end);
}

function describeActor(id: string, actor: AnyActorRef, replies: Replies): ActorSummary {
  const { status, value, children = {} } = actor.getSnapshot() as MachineSnapshot;
  const isActive = ([, child]: [string, unknown]): boolean => child !== undefined;
  const effects = Object.entries(children)
    .filter(isActive)
    .map(([name]) => name);
  return { id, state: status === 'active' ? (value ?? status) : status, effects, unanswered: replies.pendingOf(actor) };
}
