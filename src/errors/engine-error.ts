/**
 * The one error hierarchy of the daemon. Drivers translate foreign errors (errno, gRPC status, registry codes)
 * into it at the edge that meets them; `src/http/error-status.ts` is the only place that knows HTTP statuses.
 */

/** The kinds of errors, a closed set. The HTTP front maps each kind to exactly one status. */
export type ErrorKind =
  | 'invalid'
  | 'unauthorized'
  | 'forbidden'
  | 'not-found'
  | 'conflict'
  | 'not-modified'
  | 'unavailable'
  | 'not-implemented'
  | 'deadline'
  | 'cancelled'
  | 'data-loss'
  | 'internal';

export interface EngineErrorOptions {
  /** Stable, searchable code such as `CONTAINER_NAME_IN_USE`. */
  readonly code?: string;
  /** The error that this one explains. Always kept for the log. */
  readonly cause?: unknown;
  /** Structured facts for callers inside the daemon, never for the wire. */
  readonly details?: Readonly<Record<string, unknown>>;
}

/** An expected failure. Anything else that is thrown is a bug and becomes a 500 with a full log line. */
export class EngineError extends Error {
  override readonly name = 'EngineError';
  readonly kind: ErrorKind;
  readonly code: string | undefined;
  readonly details: Readonly<Record<string, unknown>>;

  constructor(kind: ErrorKind, message: string, options: EngineErrorOptions = {}) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.kind = kind;
    this.code = options.code;
    this.details = options.details ?? {};
  }
}

const maker =
  (kind: ErrorKind) =>
  (message: string, options?: EngineErrorOptions): EngineError =>
    new EngineError(kind, message, options);

export const invalid = maker('invalid');
export const unauthorized = maker('unauthorized');
export const forbidden = maker('forbidden');
export const notFound = maker('not-found');
export const conflict = maker('conflict');
export const notModified = maker('not-modified');
export const unavailable = maker('unavailable');
export const notImplemented = maker('not-implemented');
export const deadline = maker('deadline');
export const cancelled = maker('cancelled');
export const dataLoss = maker('data-loss');
export const internal = maker('internal');

/** True for an EngineError of the given kind (of any kind when none is named). */
export function isEngineError(error: unknown, kind?: ErrorKind): error is EngineError {
  return error instanceof EngineError && (kind === undefined || error.kind === kind);
}

/** Returns the message of anything that can be thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
