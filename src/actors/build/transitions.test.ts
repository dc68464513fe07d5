/**
 * Every event in every state of a build, of its solving and of one step: the next state and the names of the actions;
 * nothing is executed.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type AnyEventObject, type AnyMachineSnapshot, type AnyStateMachine, initialTransition } from 'xstate';
import { cancelled, internal } from '../../errors/engine-error.js';
import { never, pathOf, Transitions } from '../../../test/support/pure-machines.js';
import { type BuildInput, createBuildMachine } from './build.machine.js';
import type { Solve } from './solve/solve.js';
import { solveMachine } from './solve/solve.machine.js';
import { stepMachine } from './solve/step.machine.js';

interface Case {
  readonly state: string;
  readonly context: object;
  readonly event: AnyEventObject;
  /** The next state, the names of the actions, and how it will have ended. */
  readonly expected: readonly string[];
}

const failure = internal('no');
const gone = cancelled('context canceled');
const done = (id: string, output: unknown): AnyEventObject => ({ type: `xstate.done.actor.${id}`, output });
const failed = (id: string, error: unknown): AnyEventObject => ({ type: `xstate.error.actor.${id}`, error });

const STOP = 'xstate.stopChild';
const SPAWN = 'xstate.spawnChild';

/** Returns what the context has for the last word of the actor. */
function endOf({ context: { result, error } }: AnyMachineSnapshot): string[] {
  return [...(result ? ['result'] : []), ...(error ? [`error ${(error as Error).message}`] : [])];
}

function check(machine: AnyStateMachine, cases: Readonly<Record<string, Case>>): void {
  const transitions = new Transitions(machine);
  for (const [name, { state, context, event, expected }] of Object.entries(cases)) {
    test(`${machine.id}: ${name}`, () => {
      const [outer = '', inner] = state.split('.');
      const value = inner === undefined ? outer : { [outer]: inner };
      const [next, actions] = transitions.next(value, context, event);
      assert.deepEqual([pathOf(next.value), ...actions.map(({ type }) => type), ...endOf(next)], expected);
    });
  }
  test(`${machine.id}: every event met every state in which one can stay`, () => transitions.assertComplete());
}

const build = createBuildMachine({ classic: never, solve: never });
const input = { request: { classic: undefined }, abort: new AbortController(), result: undefined, error: undefined };
const cancel = { type: 'build.cancel' };

check(build, {
  'a classic build that is cancelled goes on until its step ends': {
    state: 'building',
    context: input,
    event: cancel,
    expected: ['building', 'abort'],
  },
  'a classic build that is done': {
    state: 'building',
    context: input,
    event: done('0.build.building', {}),
    expected: ['done', STOP, 'result'],
  },
  'a classic build that fails': {
    state: 'building',
    context: input,
    event: failed('0.build.building', failure),
    expected: ['failed', STOP, 'error no'],
  },
  'a build that is cancelled goes on until its steps have ended': {
    state: 'solving',
    context: input,
    event: cancel,
    expected: ['solving', 'abort'],
  },
  'a build that is done': {
    state: 'solving',
    context: input,
    event: done('solve', { result: {} }),
    expected: ['done', STOP, 'result'],
  },
  'a build that fails': {
    state: 'solving',
    context: input,
    event: done('solve', { error: failure }),
    expected: ['failed', STOP, 'error no'],
  },
  'a build that crashes': {
    state: 'solving',
    context: input,
    event: failed('solve', failure),
    expected: ['failed', STOP, 'error no'],
  },
});

test('a build begins by the way that its client asked for', () => {
  const begun = (request: object): unknown => {
    const works = createBuildMachine({ classic: never, solve: () => ({}) as Solve });
    return initialTransition(works, { request, abort: new AbortController() } as BuildInput)[0].value;
  };
  assert.deepEqual([begun({ classic: {} }), begun({})], ['building', 'solving']);
});

/** A solving with steps that run, and digests of steps that have ended since the plan was told. */
const solving = (running: number, ...ended: readonly string[]): object => ({
  solve: {},
  running,
  ended: ended.map((digest) => ({ digest, result: {} })),
  result: undefined,
  error: undefined,
});
const failing = (running: number, ...ended: readonly string[]): object => ({
  ...solving(running, ...ended),
  error: failure,
});
/** The answer of the plan: it was told so much, and steps of these digests can begin. */
const begun = (told: number, ...digests: readonly string[]): object => ({
  told,
  inputs: digests.map((digest) => ({ executor: {}, work: { step: { digest } } })),
});

check(solveMachine, {
  'a plan that is made': {
    state: 'planning',
    context: solving(0),
    event: done('0.solve.planning', undefined),
    expected: ['solving.advancing', STOP, SPAWN],
  },
  'a plan that fails': {
    state: 'planning',
    context: solving(0),
    event: failed('0.solve.planning', failure),
    expected: ['closing', STOP, SPAWN, 'error no'],
  },
  'steps that can begin': {
    state: 'solving.advancing',
    context: solving(0),
    event: done('0.solve.solving.advancing', begun(0, 'a', 'b')),
    expected: ['solving.waiting', STOP, SPAWN, SPAWN],
  },
  'no step at all': {
    state: 'solving.advancing',
    context: solving(0),
    event: done('0.solve.solving.advancing', begun(0)),
    expected: ['exporting', STOP, SPAWN],
  },
  'the last step is told of': {
    state: 'solving.advancing',
    context: solving(0, 'a'),
    event: done('0.solve.solving.advancing', begun(1)),
    expected: ['exporting', STOP, SPAWN],
  },
  'a step that ends while another one is told of': {
    state: 'solving.advancing',
    context: solving(1, 'a'),
    event: done('step-b', { digest: 'b', result: {} }),
    expected: ['solving.advancing'],
  },
  'more news than were told': {
    state: 'solving.advancing',
    context: solving(1, 'a', 'b'),
    event: done('0.solve.solving.advancing', begun(1)),
    expected: ['solving.advancing', STOP, SPAWN],
  },
  'steps that could begin when another one has failed meanwhile': {
    state: 'solving.advancing',
    context: failing(1),
    event: done('0.solve.solving.advancing', begun(0, 'a')),
    expected: ['solving.waiting', STOP, 'error no'],
  },
  'a failure is told of, and nothing runs': {
    state: 'solving.advancing',
    context: failing(0, 'a'),
    event: done('0.solve.solving.advancing', begun(1)),
    expected: ['closing', STOP, SPAWN, 'error no'],
  },
  'a plan that cannot be asked, while steps run': {
    state: 'solving.advancing',
    context: solving(1, 'a'),
    event: failed('0.solve.solving.advancing', failure),
    expected: ['solving.waiting', STOP, 'cancel', 'error no'],
  },
  'a plan that cannot be asked, and nothing runs': {
    state: 'solving.advancing',
    context: solving(0, 'a'),
    event: failed('0.solve.solving.advancing', failure),
    expected: ['closing', STOP, 'cancel', SPAWN, 'error no'],
  },
  'a step that is done': {
    state: 'solving.waiting',
    context: solving(1),
    event: done('step-a', { digest: 'a', result: {} }),
    expected: ['solving.advancing', SPAWN],
  },
  'a step that fails': {
    state: 'solving.waiting',
    context: solving(2),
    event: done('step-a', { digest: 'a', error: failure }),
    expected: ['solving.advancing', SPAWN, 'error no'],
  },
  'a step that crashes': {
    state: 'solving.waiting',
    context: solving(2),
    event: failed('step-a', failure),
    expected: ['solving.advancing', SPAWN, 'error no'],
  },
  'a step that is cancelled after a failure': {
    state: 'solving.waiting',
    context: failing(1),
    event: done('step-a', { digest: 'a', error: gone }),
    expected: ['solving.advancing', SPAWN, 'error no'],
  },
  'outputs that are made': {
    state: 'exporting',
    context: solving(0),
    event: done('0.solve.exporting', {}),
    expected: ['closing', STOP, SPAWN, 'result'],
  },
  'outputs that fail': {
    state: 'exporting',
    context: solving(0),
    event: failed('0.solve.exporting', failure),
    expected: ['closing', STOP, SPAWN, 'error no'],
  },
  'all given back': {
    state: 'closing',
    context: solving(0),
    event: done('0.solve.closing', undefined),
    expected: ['over', STOP],
  },
  'something not given back': {
    state: 'closing',
    context: solving(0),
    event: failed('0.solve.closing', failure),
    expected: ['over', STOP, 'error no'],
  },
});

const step = {
  executor: {},
  work: { step: { digest: 'a' } },
  missed: undefined,
  freeProcessor: never,
  result: undefined,
  error: undefined,
};

check(stepMachine, {
  'made before': {
    state: 'lookingUp',
    context: step,
    event: done('0.step.lookingUp', { kind: 'found', result: {} }),
    expected: ['done', STOP, 'release', 'tell', 'result'],
  },
  'not made before': {
    state: 'lookingUp',
    context: step,
    event: done('0.step.lookingUp', { kind: 'missed' }),
    expected: ['queued', STOP, SPAWN],
  },
  'cancelled while it is looked up': {
    state: 'lookingUp',
    context: step,
    event: failed('0.step.lookingUp', gone),
    expected: ['cancelled', STOP, 'release', 'tell', 'error context canceled'],
  },
  'cannot be looked up': {
    state: 'lookingUp',
    context: step,
    event: failed('0.step.lookingUp', failure),
    expected: ['failed', STOP, 'begin', 'release', 'tell', 'error no'],
  },
  'has a processor': {
    state: 'queued',
    context: step,
    event: done('0.step.queued', never),
    expected: ['running', STOP, 'begin', SPAWN],
  },
  'cancelled while it waits': {
    state: 'queued',
    context: step,
    event: failed('0.step.queued', gone),
    expected: ['cancelled', STOP, 'release', 'tell', 'error context canceled'],
  },
  'is done': {
    state: 'running',
    context: step,
    event: done('0.step.running', {}),
    expected: ['done', STOP, 'release', 'tell', 'result'],
  },
  'cancelled while it runs': {
    state: 'running',
    context: step,
    event: failed('0.step.running', gone),
    expected: ['cancelled', STOP, 'release', 'tell', 'error context canceled'],
  },
  fails: {
    state: 'running',
    context: step,
    event: failed('0.step.running', failure),
    expected: ['failed', STOP, 'release', 'tell', 'error no'],
  },
});
