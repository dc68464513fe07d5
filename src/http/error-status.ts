/** This file alone knows which HTTP status an error has. */
import { EngineError, isEngineError, messageOf, type ErrorKind } from '../errors/engine-error.js';

/** The statuses are those of the Engine API: a deadline and lost data are plain 500s. */
const STATUS: Readonly<Record<ErrorKind, number>> = {
  invalid: 400,
  unauthorized: 401,
  forbidden: 403,
  'not-found': 404,
  conflict: 409,
  'not-modified': 304,
  unavailable: 503,
  'not-implemented': 501,
  deadline: 500,
  cancelled: 500,
  'data-loss': 500,
  internal: 500,
};

const STATUS_BY_CODE: ReadonlyMap<string | undefined, number> = new Map([
  ['BODY_TOO_LARGE', 413],
  ['KEY_REUSED', 422],
]);

/** Returns the status for anything that was thrown. What is not an EngineError is a bug and a 500. */
export function statusOf(error: unknown): number {
  if (!(error instanceof EngineError)) return 500;
  return STATUS_BY_CODE.get(error.code) ?? STATUS[error.kind];
}

/** Renders the body of an error reply: only `message`, not HTML-escaped, with a newline. */
export function errorBody(error: unknown): string {
  return messageBody(messageOf(error));
}

export function messageBody(message: string): string {
  return `${JSON.stringify({ message })}\n`;
}

/** False for what a client asked for in vain, also where its status is 500: a registry that does not let it in. */
export function isTrouble(error: unknown): boolean {
  if (!isEngineError(error)) return true;
  if (isEngineError(error.cause, 'unauthorized') || isEngineError(error.cause, 'forbidden')) return false;
  return error.kind === 'internal' || error.kind === 'data-loss';
}
