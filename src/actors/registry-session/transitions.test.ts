/**
 * Every event in every state of a registry session: the next state and the names of the actions; nothing is executed. A
 * session that has expired gets no events.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { internal, unavailable } from '../../errors/engine-error.js';
import type { Place } from '../../registry/probe.js';
import { never, NoReplies, Transitions } from '../../../test/support/pure-machines.js';
import { createSessionMachine } from './registry-session.machine.js';
import type { SessionEvent, SessionInput } from './registry-session.messages.js';
import { newSession, type SessionContext } from './session-state.js';

const NOW = 1_000_000;
const endpoint = { url: 'https://r', tls: { verify: true } };
const place: Place = { endpoint, scheme: { kind: 'bearer', realm: 'https://t', service: undefined } };
const input: SessionInput = {
  host: { name: 'r', isMirror: false, isInsecure: false, endpoints: [endpoint] },
  credentials: undefined,
};

const machine = createSessionMachine({ probe: never, authorize: never }, new NoReplies(), () => NOW);
const transitions = new Transitions(machine);

const waiting = [{ req: 1, scope: 'a' }];
const CONTEXTS: Record<string, Partial<SessionContext>> = {
  ready: { place },
  quiet: { place, waiting, quietUntilMs: NOW + 1000 },
  probing: { waiting },
  authorizing: { place, waiting, asking: 'a' },
};

const ended = (how: 'done' | 'error', state: string, value: object): SessionEvent =>
  ({ type: `xstate.${how}.actor.0.registry-session.${state}`, ...value }) as unknown as SessionEvent;
const slow = unavailable('slow', { details: { status: 429, retryAfterMs: 50 } });
const EVENTS: Record<string, SessionEvent> = {
  grant: { type: 'session.grant', req: 2, scope: 'b', refusal: undefined },
  'hopeless grant': {
    type: 'session.grant',
    req: 2,
    scope: 'b',
    refusal: { grant: { endpoint, authorization: undefined }, error: internal('no') },
  },
  'last leaves': { type: 'request.cancelled', req: 1 },
  'other leaves': { type: 'request.cancelled', req: 7 },
  'silence over': { type: 'silence.over' },
  idle: { type: 'limit.idle' },
  'probe done': ended('done', 'probing', { output: place }),
  'probe failed': ended('error', 'probing', { error: internal('no') }),
  'probe limited': ended('error', 'probing', { error: slow }),
  'token done': ended('done', 'authorizing', { output: { header: 't', expiresAt: NOW + 60_000 } }),
  'token failed': ended('error', 'authorizing', { error: internal('no') }),
  'token limited': ended('error', 'authorizing', { error: slow }),
};

const STOP = 'xstate.stopChild';
const SPAWN = 'xstate.spawnChild';
/** An event that is not here changes nothing and leads to no action. */
const TABLE: Record<string, readonly [string, ...string[]]> = {
  'ready, grant': ['authorizing', STOP, 'settle', 'settle', SPAWN],
  'ready, hopeless grant': ['ready', STOP, 'settle', 'settle', SPAWN],
  'ready, idle': ['expired', STOP],
  'quiet, grant': ['quiet', 'settle'],
  'quiet, hopeless grant': ['quiet', 'settle'],
  'quiet, silence over': ['quiet', STOP, 'settle', SPAWN],
  'probing, grant': ['probing', 'settle'],
  'probing, hopeless grant': ['probing', 'settle'],
  'probing, last leaves': ['ready', STOP, 'settle', SPAWN],
  'probing, probe done': ['authorizing', STOP, 'settle', SPAWN],
  'probing, probe failed': ['ready', STOP, 'settle', 'settle', SPAWN],
  'probing, probe limited': ['quiet', STOP, 'settle', 'settle', SPAWN],
  'authorizing, grant': ['authorizing', 'settle'],
  'authorizing, hopeless grant': ['authorizing', 'settle'],
  'authorizing, last leaves': ['ready', STOP, 'settle', SPAWN],
  'authorizing, token done': ['ready', STOP, 'settle', SPAWN],
  'authorizing, token failed': ['ready', STOP, 'settle', 'settle', SPAWN],
  'authorizing, token limited': ['quiet', STOP, 'settle', 'settle', SPAWN],
};

for (const [state, known] of Object.entries(CONTEXTS)) {
  for (const [name, event] of Object.entries(EVENTS)) {
    test(`${state}, ${name}`, () => {
      const context: SessionContext = { ...newSession(input), ...known };
      const [next, actions] = transitions.next(state, context, event);
      const types = actions.map(({ type }) => type);
      assert.deepEqual([next.value, ...types], TABLE[`${state}, ${name}`] ?? [state]);
    });
  }
}

test('every event met every state in which a session can stay', () => transitions.assertComplete());
