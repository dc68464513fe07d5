/**
 * Tables of transitions use these: replies and effects that fail the test when they are executed, the states of a
 * machine by their paths, and what says that a table is complete.
 */
import assert from 'node:assert/strict';
import {
  type AnyEventObject,
  type AnyStateMachine,
  type AnyStateNode,
  type ContextFrom,
  type EventFrom,
  type SnapshotFrom,
  type StateValue,
  transition,
} from 'xstate';
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

/**
 * Asks a machine for transitions, and knows which events have met which states. Which of them have to meet, the
 * machine's own definition says, so a state or an event that is new fails a test until the table has it.
 */
export class Transitions<M extends AnyStateMachine> {
  readonly #machine: M;
  /** Types of events by the paths of states. */
  readonly #met = new Map<string, Set<string>>();

  constructor(machine: M) {
    this.#machine = machine;
  }

  /** Returns the next snapshot and the actions that would be executed. */
  next(value: StateValue, context: ContextFrom<M>, event: EventFrom<M>): ReturnType<typeof transition<M>> {
    const path = pathOf(value);
    this.#met.set(path, (this.#met.get(path) ?? new Set()).add((event as AnyEventObject).type));
    return transition(this.#machine, this.#machine.resolveState({ value, context }) as SnapshotFrom<M>, event);
  }

  /**
   * Fails unless every state in which an actor can stay has met every command, and every end of an effect or of a wait
   * that it answers.
   */
  assertComplete(): void {
    const { root, events } = this.#machine as AnyStateMachine;
    const resting = restingStates(root);
    assert.deepEqual([...this.#met.keys()].toSorted(), resting.map(({ path }) => path.join('.')).toSorted());
    const commands = events.filter((type) => !isInternal(type));
    const missing = resting.flatMap((state) => {
      const path = state.path.join('.');
      const met = [...(this.#met.get(path) ?? [])];
      return [...new Set([...commands, ...answered(state)])]
        .filter((wanted) => !met.some((type) => matches(type, wanted)))
        .map((wanted) => `${path}: ${wanted}`);
    });
    assert.deepEqual(missing, []);
  }
}

/** Returns the states that are neither left at once nor final. */
function restingStates(node: AnyStateNode): AnyStateNode[] {
  const inner = Object.values(node.states);
  if (inner.length > 0) return inner.flatMap(restingStates);
  // A guarded way out may be closed; without a way that is always open, the state can be stayed in.
  const isPassing = (node.always ?? []).some(({ guard }) => guard === undefined);
  return node.type === 'final' || isPassing ? [] : [node];
}

/** Returns the events that have an answer in a state or in one around it. */
function answered(state: AnyStateNode): string[] {
  return [...state.ownEvents, ...(state.parent === undefined ? [] : answered(state.parent))];
}

/** Whether the library makes the event, for one state only as a rule. */
function isInternal(type: string): boolean {
  return type.startsWith('xstate.');
}

/** @param descriptor a type of event, or the beginning of some, with a star. */
function matches(type: string, descriptor: string): boolean {
  return descriptor.endsWith('*') ? type.startsWith(descriptor.slice(0, -1)) : type === descriptor;
}
