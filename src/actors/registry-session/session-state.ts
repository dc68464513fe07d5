/**
 * A registry session knows this, and each event changes it so. These functions compute and do nothing else: the
 * machine says when they are called.
 */
import { EngineError } from '../../errors/engine-error.js';
import type { Grant } from '../../registry/access.js';
import { factsOf } from '../../registry/failure.js';
import type { Place } from '../../registry/probe.js';
import { type Authorization, schemeOfHeader } from '../../registry/token.js';
import type { RequestId } from '../kit/commands.js';
import type { SessionCommand, SessionInput } from './registry-session.messages.js';

interface Waiting {
  readonly req: RequestId;
  readonly scope: string;
}

/** How a command is answered: with a grant, or with the reason why there is none. */
export type Answer = { readonly req: RequestId } & ({ readonly grant: Grant } | { readonly error: unknown });

export interface SessionContext extends SessionInput {
  readonly place: Place | undefined;
  /** Tokens by their scope. */
  readonly tokens: ReadonlyMap<string, Authorization>;
  readonly waiting: readonly Waiting[];
  /** The answers that the last event led to. */
  readonly answers: readonly Answer[];
  /** Milliseconds since the epoch until which nothing is sent. */
  readonly quietUntilMs: number;
  /** Times in a row that the registry asked for silence. */
  readonly strikes: number;
  /** The scope that is being authorized. */
  readonly asking: string;
}

export type Change = Partial<SessionContext>;

/** A registry that wants longer silence fails the pull instead: no client waits for hours. */
export const MAX_SILENCE_MS = 60_000;
const FIRST_SILENCE_MS = 1000;
const MAX_STRIKES = 5;
const MIN_TOKEN_LIFE_MS = 10_000;

export function newSession(input: SessionInput): SessionContext {
  return {
    ...input,
    place: undefined,
    tokens: new Map(),
    waiting: [],
    answers: [],
    quietUntilMs: 0,
    strikes: 0,
    asking: '',
  };
}

/**
 * Returns how many milliseconds the registry wants to be left alone; undefined when that is not why it failed, or takes
 * too long.
 */
function silenceMs(error: unknown, strikes: number): number | undefined {
  const { status, retryAfterMs } = factsOf(error);
  if (status !== 429 && status !== 503) return undefined;
  const ms = retryAfterMs ?? FIRST_SILENCE_MS * 2 ** strikes;
  if (strikes >= MAX_STRIKES || ms > MAX_SILENCE_MS) return undefined;
  // Jitter, so that the waiting of several daemons does not end at the same moment.
  return ms + Math.random() * Math.min(ms / 10, FIRST_SILENCE_MS);
}

/** Returns the changes after a refused grant; an error when no better grant can be had. */
function judge(context: SessionContext, { scope, refusal }: SessionCommand, nowMs: number): Change | EngineError {
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

/** Takes a command: it waits, or is answered when no better grant can be had than the one before. */
export function taken(context: SessionContext, command: SessionCommand, nowMs: number): Change {
  const { req, scope } = command;
  const verdict = judge(context, command, nowMs);
  if (verdict instanceof EngineError) return { answers: [{ req, error: verdict }] };
  return { ...verdict, answers: [], waiting: [...context.waiting, { req, scope }] };
}

/** Answers the commands whose token is valid, unless the registry wants silence. */
export function answered(context: SessionContext, nowMs: number): Change {
  const { place, tokens, waiting } = context;
  if (!place || context.quietUntilMs > nowMs) return { answers: [] };
  const answers: Answer[] = [];
  const others = waiting.filter(({ req, scope }) => {
    const token = tokens.get(scope);
    if (!token || token.expiresAt <= nowMs) return true;
    answers.push({ req, grant: { endpoint: place.endpoint, authorization: token.header } });
    return false;
  });
  return { answers, waiting: others };
}

/** Takes a token that has come for the scope that was asked for. */
export function authorized(context: SessionContext, token: Authorization, nowMs: number): Change {
  // However short the life of the token, those who wait now can use it.
  const expiresAt = Math.max(token.expiresAt, nowMs + MIN_TOKEN_LIFE_MS);
  return { tokens: new Map(context.tokens).set(context.asking, { ...token, expiresAt }), strikes: 0 };
}

/**
 * Takes a failure of the registry. The registry is left alone if it asks for that, else the commands that the failure
 * is about are answered.
 */
export function failed(
  context: SessionContext,
  error: unknown,
  isConcerned: (scope: string) => boolean,
  nowMs: number,
): Change {
  const quietMs = silenceMs(error, context.strikes);
  if (quietMs !== undefined) return { answers: [], quietUntilMs: nowMs + quietMs, strikes: context.strikes + 1 };
  return {
    answers: context.waiting.filter(({ scope }) => isConcerned(scope)).map(({ req }) => ({ req, error })),
    waiting: context.waiting.filter(({ scope }) => !isConcerned(scope)),
    strikes: 0,
  };
}
