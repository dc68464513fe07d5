/**
 * Every event in every state of a container: the next state and the acts, by name and in their order. Nothing is
 * executed: effects, hooks and replies that are only touched fail the test.
 */
import assert from 'node:assert/strict';
import { after, before, mock, test } from 'node:test';
import { initialTransition, type ExecutableActionObject, type StateValue } from 'xstate';
import { never, NoReplies, pathOf, Transitions } from '../../../test/support/pure-machines.js';
import { isEngineError } from '../../errors/engine-error.js';
import { initialContext, type ContainerInput } from './container.context.js';
import type { ContainerEffects, ContainerHooks } from './container.effects.types.js';
import { createContainerMachine } from './container.machine.js';
import { record } from './machine-fixture.js';
import type { ActParams } from './steps/step.js';
import { CASES, eventsFor, NOW } from './transition-cases.js';
import { BEGINNINGS, TRANSITIONS } from './transition-table.js';

before(() => mock.timers.enable({ apis: ['Date'], now: NOW }));
after(() => mock.timers.reset());

/** Every member can be read from this object, but none can be called. */
const untouched = new Proxy({} as ContainerEffects & ContainerHooks, { get: () => never });
const machine = createContainerMachine(untouched, untouched, new NoReplies());
const transitions = new Transitions(machine);

/** Returns the name of an act, with the parameters that distinguish it from other acts of that name. */
function told({ type, params }: ExecutableActionObject): string {
  const { record: view, action, reqs, error, event, delay, src } = (params ?? {}) as unknown as Told;
  if (type === 'publish') return `publish ${view?.state.status}`;
  if (type === 'emit') return `emit ${action}`;
  if (type === 'settle') return `settle ${reqs?.join(' ')}`;
  if (type === 'reject') return `reject ${reqs?.join(' ')} ${isEngineError(error) ? error.kind : ''}`;
  if (type === 'xstate.spawnChild') return `invoke ${src}`;
  if (type === 'xstate.stopChild') return 'end';
  if (type !== 'xstate.raise') return type.replace('xstate.', '');
  if (event?.req === undefined) return `delay ${String(delay)}`;
  return `${delay === undefined ? 'take up' : 'postpone'} ${event.req}`;
}

/** The parameters of our acts and of those of the library, as far as they are shown. */
interface Told extends Partial<
  Pick<ActParams['publish'] & ActParams['emit'] & ActParams['reject'], 'record' | 'action' | 'reqs' | 'error'>
> {
  readonly event?: { readonly req?: number };
  readonly delay?: unknown;
  readonly src?: string;
}

function row(before: string, value: StateValue, actions: readonly ExecutableActionObject[]): string {
  const next = pathOf(value);
  return `${next === before ? '=' : next}: ${actions.map(told).join(', ')}`.replace(/: $/, '');
}

for (const [name, { state, context }] of Object.entries(CASES)) {
  test(name, () => {
    const expected = new Map(
      Object.entries(TRANSITIONS[name] ?? {}).flatMap(([events, result]) =>
        events.split(', ').map((event) => [event, result] as const),
      ),
    );
    const path = pathOf(state);
    const events = eventsFor(path, context);
    const rows = Object.entries(events).map(([event, sent]) => {
      const [next, actions] = transitions.next(state, context, sent);
      return [event, row(path, next.value, actions)];
    });
    assert.deepEqual(
      Object.fromEntries(rows),
      Object.fromEntries(Object.keys(events).map((event) => [event, expected.get(event) ?? '='])),
    );
    assert.deepEqual(
      [...expected.keys()].filter((event) => !(event in events)),
      [],
    );
  });
}

for (const [phase, expected] of Object.entries(BEGINNINGS)) {
  test(`begins as ${phase}`, () => {
    const exit = { exitCode: 0, exitedAt: new Date() };
    const [first, actions] = initialTransition(machine, { record, phase, exit } as ContainerInput);
    assert.equal(row('', first.value, actions), expected);
  });
}

test('commands are refused when too many wait already', () => {
  const postponed = Array.from({ length: 1000 }, () => ({ type: 'container.pause', req: 4 }) as const);
  const context = { ...initialContext({ phase: 'new', record }), postponed };
  const [next, actions] = transitions.next('creating', context, { type: 'container.start', req: 9 });
  assert.equal(row('creating', next.value, actions), '=: reject 9 unavailable');
});

test('every event met every state in which a container can stay', () => transitions.assertComplete());
