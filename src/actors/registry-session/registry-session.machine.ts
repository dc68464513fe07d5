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
import { EngineError } from '../../errors/engine-error.js';
import { factsOf } from '../../registry/failure.js';
import type { Place } from '../../registry/probe.js';
import { schemeOfHeader, type Authorization } from '../../registry/token.js';
import type { RequestId } from '../kit/commands.js';
import { effect } from '../kit/effect.js';
import type { Replies } from '../kit/replies.js';
import type { AuthorizeInput, SessionEffects } from './registry-session.effects.js';
import type { SessionCommand, SessionEvent, SessionInput } from './registry-session.messages.js';

interface Waiting {
  readonly req: RequestId;
  readonly scope: string;
}

export interface SessionContext extends SessionInput {
  readonly place: Place | undefined;
  /** By scope. */
  readonly tokens: ReadonlyMap<string, Authorization>;
  readonly waiting: readonly Waiting[];
  /** Milliseconds since the epoch until which nothing is sent. */
  readonly quietUntilMs: number;
  /** Times in a row that the registry asked for silence. */
  readonly strikes: number;
  /** Scope that is being authorized. */
  readonly asking: string;
}

/** A registry that wants longer silence fails the pull instead: no client waits for hours. */
export const MAX_SILENCE_MS = 60_000;
const FIRST_SILENCE_MS = 1000;
const MAX_STRIKES = 5;
const IDLE_MS = 5 * 60_000;
const MIN_TOKEN_LIFE_MS = 10_000;

/** How long the registry wants to be left alone, undefined when that is no reason of the failure or takes too long. */
function silenceMs(error: unknown, strikes: number): number | undefined {
  const { status, retryAfterMs } = factsOf(error);
  if (status !== 429 && status !== 503) return undefined;
  const ms = retryAfterMs ?? FIRST_SILENCE_MS * 2 ** strikes;
  if (strikes >= MAX_STRIKES || ms > MAX_SILENCE_MS) return undefined;
  // Jitter, so that the waiting of several daemons does not end at the same moment.
  return ms + Math.random() * Math.min(ms / 10, FIRST_SILENCE_MS);
}

/** Returns the changes after a refused grant; an error when nothing better can be had. */
function judge(
  context: SessionContext,
  { scope, refusal }: SessionCommand,
  nowMs: number,
): Partial<SessionContext> | EngineError {
  if (!refusal) return {};
  const { error, grant } = refusal;
  const quietMs = silenceMs(error, context.strikes);
  if (quietMs !== undefined)
    return { quietUntilMs: Math.max(context.quietUntilMs, nowMs + quietMs), strikes: context.strikes + 1 };
  const { status, wwwAuthenticate } = factsOf(error);
  const hopeless =
    error instanceof EngineError ? error : new EngineError('internal', 'the registry refused', { cause: error });
  if (status !== 401 || !context.place) return hopeless;
  const held = context.tokens.get(scope)?.header;
  // Another request renewed the token meanwhile.
  if (held !== undefined && held !== grant.authorization) return {};
  const { scheme } = context.place;
  const offered = schemeOfHeader(wwwAuthenticate);
  const canRenew =
    context.credentials?.registryToken === undefined &&
    (scheme.kind === 'bearer' || (scheme.kind === 'none' && offered.kind !== 'none'));
  if (!canRenew) return hopeless;
  const tokens = new Map(context.tokens);
  tokens.delete(scope);
  return { tokens, place: { ...context.place, scheme: offered.kind === 'none' ? scheme : offered } };
}

export function createSessionMachine(effects: SessionEffects, replies: Replies, now: () => number = Date.now) {
  const valid = (context: SessionContext, scope: string): Authorization | undefined => {
    const token = context.tokens.get(scope);
    return token && token.expiresAt > now() ? token : undefined;
  };
  const reject = (waiting: readonly Waiting[], error: unknown): void => {
    for (const { req } of waiting) replies.reject(req, error);
  };

  return setup({
    types: { context: {} as SessionContext, events: {} as SessionEvent, input: {} as SessionInput },
    actors: {
      probe: effect<Place, SessionInput>(({ host }, signal) => effects.probe(host, signal)),
      authorize: effect<Authorization, AuthorizeInput>((input, signal) => effects.authorize(input, signal)),
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
      take: assign(({ context, event }) => {
        if (event.type !== 'session.grant') return {};
        const verdict = judge(context, event, now());
        if (verdict instanceof EngineError) {
          replies.reject(event.req, verdict);
          return {};
        }
        return { ...verdict, waiting: [...context.waiting, { req: event.req, scope: event.scope }] };
      }),
      choose: assign(({ context }) => ({ asking: context.waiting[0]?.scope ?? '' })),
      forget: assign(({ context, event }) => {
        return event.type === 'request.cancelled'
          ? { waiting: context.waiting.filter(({ req }) => req !== event.req) }
          : {};
      }),
      answer: assign(({ context }) => {
        const { place } = context;
        if (!place || context.quietUntilMs > now()) return {};
        const waiting = context.waiting.filter(({ req, scope }) => {
          const token = valid(context, scope);
          if (token) replies.settle(req, { endpoint: place.endpoint, authorization: token.header });
          return !token;
        });
        return { waiting };
      }),
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
  }).createMachine({
    id: 'registry-session',
    context: ({ input }) => ({
      ...input,
      place: undefined,
      tokens: new Map(),
      waiting: [],
      quietUntilMs: 0,
      strikes: 0,
      asking: '',
    }),
    initial: 'ready',
    on: {
      'session.grant': { actions: 'take' },
      'request.cancelled': { actions: 'forget' },
      'silence.over': {},
      'limit.idle': {},
    },
    states: {
      ready: {
        invoke: { src: 'idleness' },
        on: {
          'session.grant': { target: 'deciding', actions: 'take' },
          'limit.idle': 'expired',
        },
      },
      deciding: {
        entry: 'answer',
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
          onError: {
            target: 'deciding',
            actions: assign(({ context, event }) => {
              const quietMs = silenceMs(event.error, context.strikes);
              if (quietMs !== undefined) return { quietUntilMs: now() + quietMs, strikes: context.strikes + 1 };
              reject(context.waiting, event.error);
              return { waiting: [], strikes: 0 };
            }),
          },
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
          input: ({ context }) => {
            const { place, credentials, asking } = context;
            if (!place) throw new Error('authorizing before an endpoint is known');
            return { ...place, credentials, scope: asking };
          },
          onDone: {
            target: 'deciding',
            actions: assign(({ context, event }) => {
              // However short its life: those who wait now can use it.
              const expiresAt = Math.max(event.output.expiresAt, now() + MIN_TOKEN_LIFE_MS);
              return {
                tokens: new Map(context.tokens).set(context.asking, { ...event.output, expiresAt }),
                strikes: 0,
              };
            }),
          },
          onError: {
            target: 'deciding',
            actions: assign(({ context, event }) => {
              const quietMs = silenceMs(event.error, context.strikes);
              if (quietMs !== undefined) return { quietUntilMs: now() + quietMs, strikes: context.strikes + 1 };
              reject(
                context.waiting.filter(({ scope }) => scope === context.asking),
                event.error,
              );
              return { waiting: context.waiting.filter(({ scope }) => scope !== context.asking), strikes: 0 };
            }),
          },
        },
      },
      expired: { type: 'final' },
    },
  });
}

export type SessionMachine = ReturnType<typeof createSessionMachine>;
