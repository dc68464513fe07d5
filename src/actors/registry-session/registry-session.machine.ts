/**
 * One registry as one set of credentials sees it: which endpoint answers, which tokens are valid, when it wants
 * silence.
 *
 *   ready ──grant──► deciding ──► probing ───────┐
 *     ▲                │  ▲ │                    │
 *     │ nobody waits   │  │ └──► authorizing ────┤
 *     └────────────────┘  │                      │
 *     │ idle              └──── quiet ◄──────────┘ 429, 503
 *     ▼
 *   expired
 *
 * Owner: the sessions collection. Invariants: each grant is answered once; while the registry asked for silence nothing
 * is sent to it; at most one token is fetched at a time, and all who wait for its scope share it.
 */
import { assign, fromCallback, setup } from 'xstate';
import type { RegistryHost } from '../../registry/endpoint.js';
import type { Place } from '../../registry/probe.js';
import type { Authorization, TokenRequest } from '../../registry/token.js';
import { effect } from '../kit/effect.js';
import type { Replies } from '../kit/replies.js';
import type { SessionEvent, SessionInput } from './registry-session.messages.js';
import { answered, authorized, failed, newSession, type SessionContext, taken } from './session-state.js';

/** The registry driver does this part; both effects abort with the signal. */
export interface SessionEffects {
  /** Finds the endpoint to use. Throws the last endpoint's failure, with advice when the registry is not secure. */
  probe(host: RegistryHost, signal: AbortSignal): Promise<Place>;
  authorize(request: TokenRequest, signal: AbortSignal): Promise<Authorization>;
}

const IDLE_MS = 5 * 60_000;

function sessionSetup(effects: SessionEffects, replies: Replies, now: () => number) {
  return setup({
    types: { context: {} as SessionContext, events: {} as SessionEvent, input: {} as SessionInput },
    actors: {
      probe: effect<Place, SessionInput>(({ host }, signal) => effects.probe(host, signal)),
      authorize: effect<Authorization, TokenRequest>((request, signal) => effects.authorize(request, signal)),
      // The session has its own timers, because delays of the actor system cost every other actor.
      silence: fromCallback<SessionEvent, number>(({ input, sendBack }) => {
        const timer = setTimeout(() => sendBack({ type: 'silence.over' }), Math.max(0, input - now()));
        return () => clearTimeout(timer);
      }),
      idleness: fromCallback<SessionEvent>(({ sendBack }) => {
        const timer = setTimeout(() => sendBack({ type: 'limit.idle' }), IDLE_MS).unref();
        return () => clearTimeout(timer);
      }),
    },
    actions: {
      take: assign(({ context, event }) => (event.type === 'session.grant' ? taken(context, event, now()) : {})),
      answer: assign(({ context }) => answered(context, now())),
      choose: assign(({ context }) => ({ asking: context.waiting[0]?.scope ?? '' })),
      forget: assign(({ context, event }) =>
        event.type === 'request.cancelled' ? { waiting: context.waiting.filter(({ req }) => req !== event.req) } : {},
      ),
      failAll: assign(({ context, event }) => failed(context, errorOf(event), () => true, now())),
      failAsking: assign(({ context, event }) =>
        failed(context, errorOf(event), (scope) => scope === context.asking, now()),
      ),
      settle: ({ context }) => {
        for (const answer of context.answers) {
          if ('error' in answer) replies.reject(answer.req, answer.error);
          else replies.settle(answer.req, answer.grant);
        }
      },
    },
    guards: {
      isQuiet: ({ context }) => context.waiting.length > 0 && context.quietUntilMs > now(),
      nobodyWaits: ({ context }) => context.waiting.length === 0,
      isUnknown: ({ context }) => context.place === undefined,
      isLast: ({ context, event }) =>
        event.type === 'request.cancelled' && context.waiting.every(({ req }) => req === event.req),
      isLastOfScope: ({ context, event }) =>
        event.type === 'request.cancelled' &&
        context.waiting.every(({ req, scope }) => req === event.req || scope !== context.asking),
    },
  });
}

export function createSessionMachine(effects: SessionEffects, replies: Replies, now: () => number = Date.now) {
  return sessionSetup(effects, replies, now).createMachine({
    id: 'registry-session',
    context: ({ input }) => newSession(input),
    initial: 'ready',
    on: {
      'session.grant': { actions: ['take', 'settle'] },
      'request.cancelled': { actions: 'forget' },
      'silence.over': {},
      'limit.idle': {},
    },
    states: {
      ready: {
        invoke: { src: 'idleness' },
        on: {
          'session.grant': { target: 'deciding', actions: ['take', 'settle'] },
          'limit.idle': 'expired',
        },
      },
      deciding: {
        entry: ['answer', 'settle'],
        always: [
          { guard: 'isQuiet', target: 'quiet' },
          { guard: 'nobodyWaits', target: 'ready' },
          { guard: 'isUnknown', target: 'probing' },
          { target: 'authorizing', actions: 'choose' },
        ],
      },
      quiet: {
        invoke: { src: 'silence', input: ({ context }) => context.quietUntilMs },
        on: { 'silence.over': 'deciding' },
      },
      probing: {
        // An effect that nobody waits for is given up, because it may be one that never ends.
        on: {
          'request.cancelled': [{ guard: 'isLast', target: 'deciding', actions: 'forget' }, { actions: 'forget' }],
        },
        invoke: {
          src: 'probe',
          input: ({ context: { host, credentials } }) => ({ host, credentials }),
          onDone: { target: 'deciding', actions: assign(({ event }) => ({ place: event.output, strikes: 0 })) },
          onError: { target: 'deciding', actions: ['failAll', 'settle'] },
        },
      },
      authorizing: {
        on: {
          'request.cancelled': [
            { guard: 'isLastOfScope', target: 'deciding', actions: 'forget' },
            { actions: 'forget' },
          ],
        },
        invoke: {
          src: 'authorize',
          input: ({ context }) => tokenRequest(context),
          onDone: {
            target: 'deciding',
            actions: assign(({ context, event }) => authorized(context, event.output, now())),
          },
          onError: { target: 'deciding', actions: ['failAsking', 'settle'] },
        },
      },
      expired: { type: 'final' },
    },
  });
}

function errorOf(event: object): unknown {
  return (event as { readonly error?: unknown }).error;
}

function tokenRequest({ place, credentials, asking }: SessionContext): TokenRequest {
  if (!place) throw new Error('authorizing before an endpoint is known');
  return { ...place, credentials, scope: asking };
}

export type SessionMachine = ReturnType<typeof createSessionMachine>;
