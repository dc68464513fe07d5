/**
 * Supervises any number of equal actors. It is actor logic of its own because a machine copies its child map on every
 * spawn, so each child makes the next one more expensive: here spawn and stop cost the same with one child and with ten
 * thousand.
 *
 * A child that ends is forgotten. A child that crashes is begun again from what `revive` finds out (never from its
 * snapshot), with exponential backoff. When its budget of restarts is spent, it is begun again only when a command or a
 * fact is for it. Facts that arrive meanwhile are kept for it. The daemon and the other children go on.
 */
import {
  createActor,
  type ActorLogic,
  type ActorRefFrom,
  type AnyActorLogic,
  type EventFromLogic,
  type InputFrom,
  type Snapshot,
} from 'xstate';
import { isEngineError } from '../../errors/engine-error.js';
import { CrashBudget } from './crash-budget.js';
import { DownChildren } from './down-children.js';
import { faultyLogic } from './faults.js';
import { NO_PROGRESS } from './pace.js';
import type { Replies } from './replies.js';

export interface CollectionOptions<L extends AnyActorLogic> {
  readonly kind: string;
  readonly logic: L;
  readonly replies: Replies;
  /**
   * Returns the input for the next incarnation of a crashed child; undefined: the child stays gone. If it throws, it is
   * called again later.
   */
  readonly revive?: (id: string) => Promise<InputFrom<L> | undefined> | InputFrom<L> | undefined;
  /** Called after every crash; `revived` tells whether the child comes back. */
  readonly onCrash: (id: string, error: unknown, revived: boolean) => void;
  readonly onDone?: (id: string, output: unknown) => void;
}

export type CollectionEvent<L extends AnyActorLogic> =
  | { readonly type: 'collection.spawn'; readonly id: string; readonly input: InputFrom<L> }
  | { readonly type: 'collection.stop'; readonly id: string }
  | { readonly type: 'xstate.stop' }
  | { readonly type: `xstate.done.actor.${string}`; readonly actorId: string; readonly output: unknown }
  | { readonly type: `xstate.error.actor.${string}`; readonly actorId: string; readonly error: unknown };

type CollectionSnapshot = Snapshot<undefined>;
type Logic<L extends AnyActorLogic> = ActorLogic<CollectionSnapshot, CollectionEvent<L>, undefined>;
type Send<L extends AnyActorLogic> = (event: CollectionEvent<L>) => void;
type Scope<L extends AnyActorLogic> = Parameters<Logic<L>['transition']>[2];

export interface Collection<L extends AnyActorLogic> {
  readonly logic: Logic<L>;
  /** The live children by id: the registry through which commands find their actor. */
  readonly children: ReadonlyMap<string, ActorRefFrom<L>>;
  /** Tells a child a fact, at once or when the child is back. Returns false when there is no such child. */
  tell(id: string, fact: EventFromLogic<L>): boolean;
  /** Returns true for a child that crashed and is not back yet. */
  isDown(id: string): boolean;
  /** Begins a child that is down now. Rejects with the error of `revive`, which is tried again later. */
  awake(id: string): Promise<void>;
}

export function createCollection<L extends AnyActorLogic>(options: CollectionOptions<L>): Collection<L> {
  const { kind, replies, revive, onCrash } = options;
  const childLogic = faultyLogic(kind, options.logic);
  const children = new Map<string, ActorRefFrom<L>>();
  const crashes = new CrashBudget();
  let send: Send<L> = () => undefined;
  const downs = new DownChildren<InputFrom<L>, EventFromLogic<L>>({
    revive: (id) => revive?.(id),
    spawn: (id, input) => send({ type: 'collection.spawn', id, input }),
    onFailure: (id, error) => onCrash(id, error, true),
  });

  const spawn = (id: string, input: InputFrom<L>, scope: Scope<L>): void => {
    if (children.has(id)) return;
    const child = createActor(childLogic, { id, input, parent: scope.self });
    children.set(id, child as unknown as ActorRefFrom<L>);
    const facts = downs.take(id);
    scope.defer(() => {
      child.start();
      for (const fact of facts) child.send(fact);
    });
  };

  const forget = (id: string, error?: unknown): ActorRefFrom<L> | undefined => {
    const child = children.get(id);
    children.delete(id);
    // A child that was given up says so itself; of other crashes clients hear only that the actor is gone.
    const isGivenUp = isEngineError(error) && error.code === NO_PROGRESS;
    if (child) replies.actorEnded(child, isGivenUp ? error : undefined);
    return child;
  };

  const stop = (id: string, scope: Scope<L>): void => {
    downs.take(id);
    const child = forget(id);
    if (child) scope.stopChild(child);
  };

  const stopAll = (scope: Scope<L>): void => {
    downs.clear();
    for (const child of children.values()) scope.stopChild(child);
  };

  const ended = (id: string, output: unknown): void => {
    forget(id);
    crashes.forget(id);
    options.onDone?.(id, output);
  };

  const crashed = (id: string, error: unknown): void => {
    forget(id, error);
    const delayMs = revive && crashes.spend(id);
    onCrash(id, error, delayMs !== undefined);
    if (revive) downs.add(id, delayMs);
  };

  return {
    logic: logicOf({ begin: (sender) => (send = sender), spawn, stop, stopAll, ended, crashed }),
    children,
    tell(id, fact) {
      const child = children.get(id);
      if (!child) return downs.keep(id, fact);
      (child as unknown as { send(fact: EventFromLogic<L>): void }).send(fact);
      return true;
    },
    isDown: (id) => downs.has(id),
    awake: (id) => downs.begin(id),
  };
}

/** The collection calls these for its events. */
interface Handlers<L extends AnyActorLogic> {
  begin(send: Send<L>): void;
  spawn(id: string, input: InputFrom<L>, scope: Scope<L>): void;
  stop(id: string, scope: Scope<L>): void;
  stopAll(scope: Scope<L>): void;
  ended(id: string, output: unknown): void;
  crashed(id: string, error: unknown): void;
}

function logicOf<L extends AnyActorLogic>(handlers: Handlers<L>): Logic<L> {
  return {
    getInitialSnapshot: (scope) => {
      handlers.begin((event) => scope.self.send(event));
      return { status: 'active', output: undefined, error: undefined };
    },
    getPersistedSnapshot: (snapshot) => snapshot,
    transition(snapshot, event, scope) {
      if (event.type === 'collection.spawn') handlers.spawn(event.id, event.input, scope);
      else if (event.type === 'collection.stop') handlers.stop(event.id, scope);
      else if (event.type === 'xstate.stop') handlers.stopAll(scope);
      else if ('output' in event) handlers.ended(event.actorId, event.output);
      else handlers.crashed(event.actorId, event.error);
      return event.type === 'xstate.stop' ? { status: 'stopped', output: undefined, error: undefined } : snapshot;
    },
  };
}
