/**
 * Tables of transitions use these: replies and effects that fail the test when they are executed, and the states of a
 * machine by their paths.
 */
import assert from 'node:assert/strict';
import type { AnyStateNode, StateValue } from 'xstate';
import { Replies } from '../../src/actors/kit/replies.js';

export const never = (): never => assert.fail('nothing is executed');

export class NoReplies extends Replies {
  override settle(): void {
    never();
  }

  override reject(): void {
    never();
  }
}

/** Returns the path of a state, with dots between the names. */
export function pathOf(value: StateValue): string {
  if (typeof value === 'string') return value;
  return Object.entries(value)
    .map(([state, inner]) => `${state}.${pathOf(inner ?? '')}`)
    .join();
}

/** Fails when `tabled` are not just the states in which an actor of this machine can stay and get events. */
export function assertTablesKnowStates(root: AnyStateNode, tabled: Iterable<string>): void {
  assert.deepEqual([...new Set(tabled)].toSorted(), restingStates(root).toSorted());
}

/** Returns the paths of the states that are neither left at once nor final. */
function restingStates({ path, states, type, always = [] }: AnyStateNode): string[] {
  const inner = Object.values(states);
  if (inner.length > 0) return inner.flatMap(restingStates);
  // A guarded way out may be closed; without a way that is always open, the state can be stayed in.
  const isPassing = always.some(({ guard }) => guard === undefined);
  return type === 'final' || isPassing ? [] : [path.join('.')];
}
