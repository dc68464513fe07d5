/**
 * A supervisor of an open-ended number of equal actors. Written as actor logic of its own because a machine copies its
 * child map on every spawn (architecture.md 3.1): here spawn and stop cost the same with one child and with ten thousand.
 *
 * A child that ends is forgotten. A child that crashes is started again from what `revive` derives (never from its
 * snapshot), with exponential backoff, until its own budget is spent; the daemon and its siblings go on.
 */
import { createActor, type ActorLogic, type ActorRefFrom, type AnyActorLogic, type InputFrom, type Snapshot } from 'xstate';
import type { Replies } from './replies.js';

export interface CollectionOptions<L extends AnyActorLogic> {
  readonly kind: string;
  readonly logic: L;
  readonly replies: Replies;
  /** Input for the next incarnation of a crashed child; undefined: it stays gone. */
  readonly revive?: (id: string) => InputFrom<L> | undefined;
  /** Told of every crash, and whether the child comes back. */
  readonly onCrash: (id: string, error: unknown, revived: boolean) => void;
  readonly onDone?: (id: string, output: unknown) => void;
}

type CollectionEvent<L extends AnyActorLogic> =
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

export interface Collection<L extends AnyActorLogic> {
  readonly logic: ActorLogic<CollectionSnapshot, CollectionEvent<L>, undefined>;
  /** The live children by id: the registry through which commands find their actor. */
  readonly children: ReadonlyMap<string, ActorRefFrom<L>>;
}

export function createCollection<L extends AnyActorLogic>(options: CollectionOptions<L>): Collection<L> {
  const children = new Map<string, ActorRefFrom<L>>();
  const crashes = new Map<string, number[]>();
  const revivals = new Map<string, NodeJS.Timeout>();

  const forget = (id: string): ActorRefFrom<L> | undefined => {
    const child = children.get(id);
    children.delete(id);
    if (child) options.replies.actorEnded(child);
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
    getInitialSnapshot: () => ({ status: 'active', output: undefined, error: undefined }),
    getPersistedSnapshot: (snapshot) => snapshot,
    transition(snapshot, event, scope) {
      switch (event.type) {
        case 'collection.spawn': {
          const { id, input } = event;
          if (children.has(id)) return snapshot;
          const child = createActor(options.logic, { id, input, parent: scope.self });
          children.set(id, child as unknown as ActorRefFrom<L>);
          scope.defer(() => child.start());
          return snapshot;
        }
        case 'collection.stop': {
          const { id } = event;
          clearTimeout(revivals.get(id));
          revivals.delete(id);
          const child = forget(id);
          if (child) scope.stopChild(child);
          return snapshot;
        }
        case 'xstate.stop': {
          for (const timer of revivals.values()) clearTimeout(timer);
          for (const child of children.values()) scope.stopChild(child);
          return { status: 'stopped', output: undefined, error: undefined };
        }
        default: {
          const id = event.actorId;
          forget(id);
          if ('output' in event) {
            crashes.delete(id);
            options.onDone?.(id, event.output);
            return snapshot;
          }
          const input = options.revive?.(id);
          const delayMs = input === undefined ? undefined : backoff(id);
          options.onCrash(id, event.error, delayMs !== undefined);
          if (input !== undefined && delayMs !== undefined) {
            const timer = setTimeout(() => {
              revivals.delete(id);
              scope.self.send({ type: 'collection.spawn', id, input });
            }, delayMs);
            revivals.set(id, timer.unref());
          }
          return snapshot;
        }
      }
    },
  };
  return { logic, children };
}
