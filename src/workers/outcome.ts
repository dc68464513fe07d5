/** How the result of a task crosses threads: structured cloning would strip an EngineError of its kind and code. */
import { EngineError, internal, isEngineError, type ErrorKind } from '../errors/engine-error.js';

export type Outcome =
  | { readonly ok: true; readonly value: unknown }
  | {
      readonly ok: false;
      readonly kind: ErrorKind;
      readonly message: string;
      readonly code: string | undefined;
      readonly details: Readonly<Record<string, unknown>>;
      readonly stack: string | undefined;
    };

/** Makes the outcome of a task that threw. A foreign error becomes `internal` and keeps its code and stack. */
export function failure(error: unknown): Outcome {
  if (isEngineError(error)) {
    return {
      ok: false,
      kind: error.kind,
      message: error.message,
      code: error.code,
      details: error.details,
      stack: error.stack,
    };
  }
  const { message, code, stack } = error as NodeJS.ErrnoException;
  return { ok: false, kind: 'internal', message: message ?? String(error), code, details: {}, stack };
}

/**
 * Returns the value of a successful outcome. For a failed one it throws the EngineError, with the worker's stack as its
 * cause.
 */
export function unwrap(outcome: Outcome): unknown {
  if (outcome.ok) return outcome.value;
  const { kind, message, code, details, stack } = outcome;
  const cause = internal(`in worker: ${message}`);
  if (stack !== undefined) cause.stack = stack;
  throw new EngineError(kind, message, { details, cause, ...(code === undefined ? {} : { code }) });
}
