import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { createActor, type AnyActor } from 'xstate';
import { internal, isEngineError, unauthorized, unavailable } from '../../errors/engine-error.js';
import type { Refusal } from '../../registry/access.js';
import type { Authorization } from '../../registry/token.js';
import { Replies } from '../kit/replies.js';
import type { Place } from '../../registry/probe.js';
import { createSessionMachine, type SessionEffects } from './registry-session.machine.js';
import type { SessionCommand, SessionInput } from './registry-session.messages.js';

const endpoint = { url: 'https://r', tls: { verify: true } };
const bearer: Place = { endpoint, scheme: { kind: 'bearer', realm: 'https://t', service: undefined } };

/**
 * Sessions to stop after a test. A session waits minutes for more work before it ends, and its timer would keep the
 * process.
 */
const started: AnyActor[] = [];
afterEach(() => {
  for (const actor of started.splice(0)) actor.stop();
});

function start(overrides: Partial<SessionEffects> = {}, credentials?: SessionInput['credentials']) {
  const replies = new Replies();
  const calls: string[] = [];
  let clock = 1_000_000;
  let token = 0;
  const effects: SessionEffects = {
    probe: async () => {
      calls.push('probe');
      return bearer;
    },
    authorize: async ({ scope }): Promise<Authorization> => {
      calls.push(`authorize ${scope}`);
      return { header: `Bearer ${token++}`, expiresAt: clock + 60_000 };
    },
    ...overrides,
  };
  const machine = createSessionMachine(effects, replies, () => clock);
  const actor = createActor(machine, {
    input: { host: { name: 'r', isMirror: false, isInsecure: false, endpoints: [endpoint] }, credentials },
  }).start();
  started.push(actor);
  const grant = (scope: string, refusal?: Refusal, signal?: AbortSignal) =>
    replies.ask<SessionCommand>(actor, { type: 'session.grant', scope, refusal }, signal);
  return { actor, calls, grant, advance: (ms: number) => (clock += ms), state: () => actor.getSnapshot().value };
}

test('the registry is probed once and each scope authorized once, whoever asks', async () => {
  const { calls, grant } = start();
  const grants = await Promise.all([grant('a'), grant('a'), grant('b'), grant('a')]);
  assert.deepEqual(
    grants.map(({ authorization }) => authorization),
    ['Bearer 0', 'Bearer 0', 'Bearer 1', 'Bearer 0'],
  );
  await grant('b');
  assert.deepEqual(calls, ['probe', 'authorize a', 'authorize b']);
});

test('a token is renewed when it ran out and when the registry refuses it', async () => {
  const { grant, advance } = start();
  const first = await grant('a');
  advance(61_000);
  const second = await grant('a');
  assert.equal(second.authorization, 'Bearer 1');
  const refused = unauthorized('x', { details: { status: 401 } });
  assert.equal((await grant('a', { grant: second, error: refused })).authorization, 'Bearer 2');
  assert.equal(
    (await grant('a', { grant: first, error: refused })).authorization,
    'Bearer 2',
    'another request renewed it already',
  );
});

test('a failed probe fails those who wait, and the next ask tries again', async () => {
  let works = false;
  const { grant } = start({ probe: async () => (works ? bearer : Promise.reject(internal('refused'))) });
  const both = [grant('a'), grant('b')];
  for (const one of both) await assert.rejects(one, { message: 'refused' });
  works = true;
  assert.equal((await grant('a')).authorization, 'Bearer 0');
});

test('refused credentials fail only those who wait for that scope', async () => {
  const { grant } = start({
    authorize: async ({ scope }) =>
      scope === 'bad' ? Promise.reject(unauthorized('no')) : { header: 'ok', expiresAt: Infinity },
  });
  const bad = [grant('bad'), grant('bad')];
  const good = grant('good');
  for (const one of bad) await assert.rejects(one, (error) => isEngineError(error, 'unauthorized'));
  assert.equal((await good).authorization, 'ok');
});

test('what cannot be renewed ends with its own error', async () => {
  const { grant } = start({
    probe: async () => ({ endpoint, scheme: { kind: 'basic' } }),
    authorize: async () => ({ header: 'Basic x', expiresAt: Infinity }),
  });
  const first = await grant('a');
  await assert.rejects(
    grant('a', { grant: first, error: unauthorized('bad password', { details: { status: 401 } }) }),
    { message: 'bad password' },
  );
});

test('a challenge that comes late is taken up', async () => {
  const { grant, calls } = start({ probe: async () => ({ endpoint, scheme: { kind: 'none' } }) });
  const first = await grant('a');
  const error = unauthorized('x', { details: { status: 401, wwwAuthenticate: 'Bearer realm="https://t"' } });
  await grant('a', { grant: first, error });
  assert.deepEqual(calls, ['authorize a', 'authorize a']);
});

test('silence that the registry asks for holds everybody back', async () => {
  const { grant, state } = start();
  const first = await grant('a');
  const limited = unavailable('slow', { details: { status: 429, retryAfterMs: 50 } });
  const waiting = [grant('a', { grant: first, error: limited }), grant('a')];
  assert.equal(state(), 'quiet');
  const abort = new AbortController();
  const gone = grant('c', undefined, abort.signal);
  abort.abort();
  await assert.rejects(gone, (error) => isEngineError(error, 'cancelled'));
  let answered = 0;
  for (const one of waiting)
    void one.then(
      () => answered++,
      () => undefined,
    );
  await new Promise((resolve) => setTimeout(resolve, 20));
  assert.equal(answered, 0);
});

test('silence that would take too long, or never ends, is an error', async () => {
  const { grant } = start();
  const first = await grant('a');
  const limited = (retryAfterMs: number) => unavailable('slow', { details: { status: 429, retryAfterMs } });
  await assert.rejects(grant('a', { grant: first, error: limited(3_600_000) }), { message: 'slow' });
});

test('a session without work expires', async () => {
  const { actor, grant } = start();
  await grant('a');
  actor.send({ type: 'limit.idle' });
  assert.equal(actor.getSnapshot().status, 'done');
});

test('an effect that never ends is given up with its last client, and the next client gets a new one', async () => {
  const never = (signal: AbortSignal): Promise<never> =>
    new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error)));
  let probes = 0;
  const aborted: string[] = [];
  const { grant, state } = start({
    probe: (_, signal) => {
      signal.addEventListener('abort', () => aborted.push('probe'));
      return probes++ === 0 ? never(signal) : Promise.resolve(bearer);
    },
    authorize: ({ scope }, signal) => {
      signal.addEventListener('abort', () => aborted.push(scope));
      return scope === 'stuck' ? never(signal) : Promise.resolve({ header: 'Bearer x', expiresAt: Infinity });
    },
  });
  const leave = async (scope: string, during: string): Promise<void> => {
    const [one, two] = [new AbortController(), new AbortController()];
    const asked = [grant(scope, undefined, one.signal), grant(scope, undefined, two.signal)].map((each) =>
      assert.rejects(each),
    );
    while (state() !== during) await new Promise((resolve) => setImmediate(resolve));
    one.abort();
    assert.equal(state(), during, 'somebody still waits');
    two.abort();
    await Promise.all(asked);
  };
  await leave('a', 'probing');
  assert.deepEqual([state(), aborted], ['ready', ['probe']]);
  assert.equal((await grant('a')).authorization, 'Bearer x');
  const left = leave('stuck', 'authorizing');
  const other = grant('b');
  await left;
  assert.equal((await other).authorization, 'Bearer x');
  assert.deepEqual([state(), aborted], ['ready', ['probe', 'stuck']]);
});
