/** A seam for the tests of supervision, which make any step of any actor fail. The daemon itself injects no faults. */
import type { AnyActorLogic, EventFromLogic, SnapshotFrom } from 'xstate';

export interface Faults {
  /**
   * This is called before and after each transition of an actor of a collection; if it throws, the actor has crashed.
   */
  transition(kind: string, state: unknown, event: string, when: 'before' | 'after'): void;
  /** Effects may be without progress for so many milliseconds. */
  readonly silenceMs: number;
  /** Runs an effect of an actor once, twice as long, or not at all. Its promise may stay unsettled for ever. */
  effect<T>(name: string, run: () => Promise<T>): Promise<T>;
}

/** Effects that have made no progress for this long are given up. */
const SILENCE_MS = 5 * 60_000;

let injected: Faults | undefined;

/** This must be called before the first actor is made. */
export function injectFaults(faults: Faults): void {
  injected = faults;
}

export function silenceLimitMs(): number {
  return injected?.silenceMs ?? SILENCE_MS;
}

export function runEffect<T>(name: string, run: () => Promise<T>): Promise<T> {
  return injected ? injected.effect(name, run) : run();
}

export function faultyLogic<L extends AnyActorLogic>(kind: string, logic: L): L {
  const faults = injected;
  if (!faults) return logic;
  const transition = (
    snapshot: SnapshotFrom<L>,
    event: EventFromLogic<L>,
    scope: Parameters<L['transition']>[2],
  ): SnapshotFrom<L> => {
    const state = (snapshot as { value?: unknown }).value;
    const { type } = event as { type: string };
    faults.transition(kind, state, type, 'before');
    const next = logic.transition(snapshot, event, scope) as SnapshotFrom<L>;
    faults.transition(kind, state, type, 'after');
    return next;
  };
  return Object.assign(Object.create(logic) as L, { transition });
}
