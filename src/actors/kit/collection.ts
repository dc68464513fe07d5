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
  /** Told of every crash, and whether the child comes back. */
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

/** Crashes that one child may have in the window before it stays down. */
const CRASH_BUDGET = 5;
const CRASH_WINDOW_MS = 60_000;
const FIRST_BACKOFF_MS = 100;
const MOST_BACKOFF_MS = 5_000;
/** So many facts are kept for one child; more are not worth the memory. */
const KEPT_FACTS = 1000;

/** This child has crashed and is not back yet. */
interface Down<L extends AnyActorLogic> {
  readonly facts: EventFromLogic<L>[];
  timer?: NodeJS.Timeout;
  attempt: Promise<void> | undefined;
}

export interface Collection<L extends AnyActorLogic> {
  readonly logic: ActorLogic<CollectionSnapshot, CollectionEvent<L>, undefined>;
  /** The live children by id: the registry through which commands find their actor. */
  readonly children: ReadonlyMap<string, ActorRefFrom<L>>;
  /** Tells a child a fact, at once or when it is back. Returns false when there is no such child. */
  tell(id: string, fact: EventFromLogic<L>): boolean;
  /** Returns true for a child that crashed and is not back yet. */
  isDown(id: string): boolean;
  /** Begins such a child now. Rejects with the error of `revive`; it is tried again later. */
  awake(id: string): Promise<void>;
}

export function createCollection<L extends AnyActorLogic>(options: CollectionOptions<L>): Collection<L> {
  const childLogic = faultyLogic(options.kind, options.logic);
  const children = new Map<string, ActorRefFrom<L>>();
  const crashes = new Map<string, number[]>();
  const downs = new Map<string, Down<L>>();
  let send: (event: CollectionEvent<L>) => void = () => undefined;

  /** Begins a child that is down. */
  const begin = (id: string, down: Down<L>): Promise<void> => {
    const attempt = async (): Promise<void> => {
      const input = await options.revive?.(id);
      if (downs.get(id) !== down) return;
      if (input === undefined) drop(id);
      else send({ type: 'collection.spawn', id, input });
    };
    down.attempt ??= attempt().finally(() => (down.attempt = undefined));
    return down.attempt;
  };

  const beginLater = (id: string, down: Down<L>, delayMs: number): void => {
    down.timer = setTimeout(() => {
      begin(id, down).catch((error: unknown) => {
        options.onCrash(id, error, true);
        if (downs.get(id) === down) beginLater(id, down, Math.min(delayMs * 2, MOST_BACKOFF_MS));
      });
    }, delayMs).unref();
  };

  const drop = (id: string): Down<L> | undefined => {
    const down = downs.get(id);
    clearTimeout(down?.timer);
    downs.delete(id);
    return down;
  };

  const forget = (id: string, error?: unknown): ActorRefFrom<L> | undefined => {
    const child = children.get(id);
    children.delete(id);
    // What was given up says so itself; of other crashes clients hear only that the actor is gone.
    const isGivenUp = isEngineError(error) && error.code === NO_PROGRESS;
    if (child) options.replies.actorEnded(child, isGivenUp ? error : undefined);
    return child;
  };

  /** Milliseconds to wait before the next incarnation, undefined when the budget is spent. */
  const backoff = (id: string): number | undefined => {
    const now = Date.now();
    const recent = (crashes.get(id) ?? []).filter((at) => now - at < CRASH_WINDOW_MS);
    recent.push(now);
    crashes.set(id, recent);
    return recent.length > CRASH_BUDGET ? undefined : FIRST_BACKOFF_MS * 2 ** (recent.length - 1);
  };

  const logic: Collection<L>['logic'] = {
    getInitialSnapshot: (scope) => {
      send = (event) => scope.self.send(event);
      return { status: 'active', output: undefined, error: undefined };
    },
    getPersistedSnapshot: (snapshot) => snapshot,
    transition(snapshot, event, scope) {
      switch (event.type) {
        case 'collection.spawn': {
          const { id, input } = event;
          if (children.has(id)) return snapshot;
          const child = createActor(childLogic, { id, input, parent: scope.self });
          children.set(id, child as unknown as ActorRefFrom<L>);
          const { facts = [] } = drop(id) ?? {};
          scope.defer(() => {
            child.start();
            for (const fact of facts) child.send(fact);
          });
          return snapshot;
        }
        case 'collection.stop': {
          const { id } = event;
          drop(id);
          const child = forget(id);
          if (child) scope.stopChild(child);
          return snapshot;
        }
        case 'xstate.stop': {
          for (const id of downs.keys()) drop(id);
          for (const child of children.values()) scope.stopChild(child);
          return { status: 'stopped', output: undefined, error: undefined };
        }
        default: {
          const id = event.actorId;
          forget(id, 'error' in event ? event.error : undefined);
          if ('output' in event) {
            crashes.delete(id);
            options.onDone?.(id, event.output);
            return snapshot;
          }
          const delayMs = options.revive && backoff(id);
          options.onCrash(id, event.error, delayMs !== undefined);
          if (!options.revive) return snapshot;
          const down: Down<L> = { facts: [], attempt: undefined };
          downs.set(id, down);
          if (delayMs !== undefined) beginLater(id, down, delayMs);
          return snapshot;
        }
      }
    },
  };
  return {
    logic,
    children,
    tell(id, fact) {
      const child = children.get(id);
      const down = downs.get(id);
      if (child) (child as unknown as { send(fact: EventFromLogic<L>): void }).send(fact);
      else if (down && down.facts.length < KEPT_FACTS) down.facts.push(fact);
      // The budget of this child is spent, so it is begun only now, because there is a fact for it.
      if (down && down.timer === undefined) beginLater(id, down, 0);
      return child !== undefined || down !== undefined;
    },
    isDown: (id) => downs.has(id),
    async awake(id) {
      const down = downs.get(id);
      if (down) await begin(id, down);
    },
  };
}
