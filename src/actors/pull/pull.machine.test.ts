import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createActor, initialTransition } from 'xstate';
import { cancelled, internal, isEngineError } from '../../errors/engine-error.js';
import { parseReference } from '../../images/reference.js';
import { never, Transitions } from '../../../test/support/pure-machines.js';
import { createPullMachine, type PullContext } from './pull.machine.js';
import type { LocatedImage, PullEvent, PullInput, PullOutcome } from './pull.messages.js';

const located = { image: {}, hosts: [] } as unknown as LocatedImage;
const input: PullInput = { id: 'p', reference: parseReference('a'), platform: undefined, credentials: undefined };

const pure = createPullMachine({ resolve: never, fetch: never, register: never }, { resolved: never, cancel: never });
const transitions = new Transitions(pure);

const PHASES = { resolve: 'resolving', fetch: 'fetching', register: 'registering' } as const;
const ended = (how: 'done' | 'error', effect: keyof typeof PHASES, value: object): PullEvent =>
  ({ type: `xstate.${how}.actor.0.pull.${PHASES[effect]}`, ...value }) as unknown as PullEvent;
const EVENTS = {
  cancel: { type: 'pull.cancel' },
  'resolve done': ended('done', 'resolve', { output: located }),
  'resolve failed': ended('error', 'resolve', { error: internal('broken') }),
  'fetch done': ended('done', 'fetch', { output: undefined }),
  'fetch failed': ended('error', 'fetch', { error: internal('broken') }),
  'register done': ended('done', 'register', { output: undefined }),
  'register failed': ended('error', 'register', { error: internal('broken') }),
} satisfies Record<string, PullEvent>;

/** The next state and the names of the actions; an event that is not here changes nothing and leads to no action. */
const TABLE: Partial<Record<string, readonly [string, ...string[]]>> = {
  'resolving, cancel': ['failed', 'xstate.stopChild'],
  'resolving, resolve done': ['fetching', 'xstate.stopChild', 'announce', 'xstate.spawnChild'],
  'resolving, resolve failed': ['failed', 'xstate.stopChild'],
  'fetching, cancel': ['fetching', 'cancelFetch'],
  'fetching, fetch done': ['registering', 'xstate.stopChild', 'xstate.spawnChild'],
  'fetching, fetch failed': ['failed', 'xstate.stopChild'],
  'registering, register done': ['done', 'xstate.stopChild'],
  'registering, register failed': ['failed', 'xstate.stopChild'],
};

for (const state of Object.values(PHASES)) {
  for (const [name, event] of Object.entries(EVENTS)) {
    test(`${state}, ${name}`, () => {
      const context: PullContext = {
        pull: input,
        located: state === 'resolving' ? undefined : located,
        error: undefined,
      };
      const [next, actions] = transitions.next(state, context, event);
      const types = actions.map(({ type }) => type);
      assert.deepEqual([next.value, ...types], TABLE[`${state}, ${name}`] ?? [state]);
      if (next.value === 'failed') assert.equal(isEngineError(next.context.error, 'cancelled'), name === 'cancel');
    });
  }
}

test('every event met every state in which a pull can stay', () => transitions.assertComplete());

test('a pull begins by resolving', () => {
  const [first, actions] = initialTransition(pure, input);
  assert.equal(first.value, 'resolving');
  assert.deepEqual(
    actions.map(({ type }) => type),
    ['xstate.spawnChild'],
  );
});

/** Runs a pull whose effects behave as given; an effect that is not given never ends. */
function start(effects: { resolve?: Promise<LocatedImage>; fetch?: Promise<void>; register?: Promise<void> }) {
  const log: string[] = [];
  const hangs = new Promise<never>(() => undefined);
  const machine = createPullMachine(
    {
      resolve: (_, signal) => {
        signal.addEventListener('abort', () => log.push('resolve aborted'));
        return effects.resolve ?? hangs;
      },
      fetch: () => effects.fetch ?? hangs,
      register: () => effects.register ?? hangs,
    },
    { resolved: () => void log.push('resolved'), cancel: (id) => void log.push(`cancel ${id}`) },
  );
  const actor = createActor(machine, { input });
  const outcome = new Promise<PullOutcome>((resolve) => {
    actor.subscribe((snapshot) => snapshot.status === 'done' && resolve(snapshot.output));
  });
  actor.start();
  return { actor, log, outcome, state: () => actor.getSnapshot().value };
}

test('a pull runs to its end and says when the image is resolved', async () => {
  const done = Promise.resolve();
  const { log, outcome } = start({ resolve: Promise.resolve(located), fetch: done, register: done });
  assert.deepEqual([await outcome, log], [{ error: undefined }, ['resolved']]);
});

test('a failure is the outcome', async () => {
  const { outcome } = start({ resolve: Promise.resolve(located), fetch: Promise.reject(internal('broken')) });
  assert.equal(((await outcome).error as Error).message, 'broken');
});

test('a cancelled pull ends at once while it resolves, and while it fetches when the fetch has ended', async () => {
  const early = start({});
  early.actor.send({ type: 'pull.cancel' });
  assert.ok(isEngineError((await early.outcome).error, 'cancelled'));
  assert.deepEqual(early.log, ['resolve aborted']);

  let end: (error: unknown) => void = () => undefined;
  const late = start({ resolve: Promise.resolve(located), fetch: new Promise((_, reject) => (end = reject)) });
  while (late.state() !== 'fetching') await new Promise((resolve) => setImmediate(resolve));
  late.actor.send({ type: 'pull.cancel' });
  assert.deepEqual([late.state(), late.log], ['fetching', ['resolved', 'cancel p']]);
  end(cancelled('not wanted'));
  assert.ok(isEngineError((await late.outcome).error, 'cancelled'));
});

test('layers that were complete in spite of a cancel are registered', async () => {
  let end: () => void = () => undefined;
  const pull = start({
    resolve: Promise.resolve(located),
    fetch: new Promise((resolve) => (end = resolve)),
    register: Promise.resolve(),
  });
  while (pull.state() !== 'fetching') await new Promise((resolve) => setImmediate(resolve));
  pull.actor.send({ type: 'pull.cancel' });
  end();
  assert.equal((await pull.outcome).error, undefined);
});
