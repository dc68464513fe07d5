/** Failures of a build, with the facts that clients show besides the message. */
import { randomUUID } from 'node:crypto';
import { asEngineError } from '../../kit/effect.js';
import { EngineError, isEngineError } from '../../../errors/engine-error.js';
import type { BuildFailureFacts } from '../../../ports/build.js';

/**
 * Returns the error with facts that it does not have itself. Whatever its kind, it is a failure of the build: clients
 * would show the kind of another one.
 */
export function blamed(error: unknown, facts: BuildFailureFacts): EngineError {
  const { message, code, details } = asEngineError(error);
  return new EngineError('internal', message, {
    ...(code !== undefined && { code }),
    cause: error,
    details: { ...facts, ...details },
  });
}

/** Returns the error with words before its message. */
export function prefixed(error: unknown, prefix: string): EngineError {
  const { kind, message, code, details } = asEngineError(error);
  return new EngineError(kind, `${prefix}${message}`, { ...(code !== undefined && { code }), cause: error, details });
}

/** Does the same, but the step of the failure shows the message without these words. */
export function prefixedForClient(error: unknown, prefix: string): EngineError {
  const { kind, message, code, details } = asEngineError(error);
  return new EngineError(kind, `${prefix}${message}`, {
    ...(code !== undefined && { code }),
    cause: error,
    details: { ...details, shown: message },
  });
}

/** Returns the error of a step for whose files there is no key; one about a source that is not there says so. */
export function withoutKey(error: unknown): unknown {
  if (!isEngineError(error) || error.code !== 'NO_SOURCE') return error;
  const missing = prefixed(error, `failed to calculate checksum of ref ${randomUUID()}: `);
  return prefixedForClient(missing, 'failed to compute cache key: ');
}

/** Returns the message that the step of a failure has. */
export function shownMessage({ message, details }: EngineError): string {
  const { shown } = details;
  return typeof shown === 'string' ? shown : message;
}
