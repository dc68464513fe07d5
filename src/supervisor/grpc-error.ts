/** Translates a gRPC status into an EngineError. Only this file knows gRPC codes and containerd's error texts. */
import { status as Status, type ServiceError } from '@grpc/grpc-js';
import { EngineError, internal, isEngineError, messageOf, type ErrorKind } from '../errors/engine-error.js';

// FAILED_PRECONDITION is containerd's "not in this state", which the Engine API calls a conflict.
const kinds: Readonly<Record<number, ErrorKind>> = {
  [Status.CANCELLED]: 'cancelled',
  [Status.INVALID_ARGUMENT]: 'invalid',
  [Status.OUT_OF_RANGE]: 'invalid',
  [Status.DEADLINE_EXCEEDED]: 'deadline',
  [Status.NOT_FOUND]: 'not-found',
  [Status.ALREADY_EXISTS]: 'conflict',
  [Status.FAILED_PRECONDITION]: 'conflict',
  [Status.ABORTED]: 'conflict',
  [Status.PERMISSION_DENIED]: 'forbidden',
  [Status.UNAUTHENTICATED]: 'unauthorized',
  [Status.UNAVAILABLE]: 'unavailable',
  [Status.RESOURCE_EXHAUSTED]: 'unavailable',
  [Status.UNIMPLEMENTED]: 'not-implemented',
  [Status.DATA_LOSS]: 'data-loss',
};

// A shim's errors lose their class on the way and arrive as UNKNOWN; these are refusals, not failures.
const conflicts = [
  'cannot delete a running process',
  'cannot exec in a paused state',
  'cannot delete a paused',
  'not paused',
];

// These are containerd's words when the connection to a shim breaks or cannot be made; they have no class either.
const lostShimEnds = ['ttrpc: closed', ': broken pipe', ': connection reset by peer'];
const unreachableShim = 'dial unix ';
// The code of what has no class, also when a shim says it.
const UNKNOWN: number = Status.UNKNOWN;
/** All texts of a runtime have this; they may quote anything that a client has sent. */
const runtimeMark = 'OCI runtime';

// containerd appends the class of an error to its text; the class is in our `kind` already. The text itself may end in
// the same words, which the system has for an error of its own.
const classes: Readonly<Record<number, string>> = {
  [Status.UNKNOWN]: 'unknown',
  [Status.NOT_FOUND]: 'not found',
  [Status.ALREADY_EXISTS]: 'already exists',
  [Status.FAILED_PRECONDITION]: 'failed precondition',
  [Status.UNAVAILABLE]: 'unavailable',
  [Status.INVALID_ARGUMENT]: 'invalid argument',
};

function withoutClass(text: string, code: number): string {
  const suffix = `: ${classes[code]}`;
  return text.endsWith(suffix) ? text.slice(0, -suffix.length) : text;
}

/**
 * The EngineError for a failed call. The text is containerd's or the runtime's own, without the class that containerd
 * appends. `details.runtimeError` is true when the runtime (shim or runc) failed, not when the shim could
 * not be asked, for which `details.shimLost` is true. `details.grpcCode` is the status.
 */
export function fromGrpc(error: unknown, method: string): EngineError {
  if (!isServiceError(error)) return internal(`${method}: ${messageOf(error)}`, { cause: error });
  return fromStatus({ code: error.code, text: withoutClass(error.details, error.code), method, cause: error });
}

/** Does the same for a status that a shim has told itself. Its codes are those of gRPC. */
export function fromShim({ code, message }: { code: number; message: string }, method: string): EngineError {
  return fromStatus({ code, text: withoutClass(message, code), method });
}

/** The EngineError for a call to a shim whose connection has broken. */
export function lostShim(method: string): EngineError {
  return fromStatus({ code: Status.UNKNOWN, text: 'ttrpc: closed', method });
}

function fromStatus(failure: { code: number; text: string; method: string; cause?: unknown }): EngineError {
  const { code, text, method, cause } = failure;
  const isShimLost = code === UNKNOWN && tellsOfLostShim(text);
  const isRuntimeError = code === UNKNOWN && !isShimLost;
  const isRefusal = isRuntimeError && conflicts.some((conflict) => text.includes(conflict));
  const kind = isRefusal ? 'conflict' : (kinds[code] ?? 'internal');
  const silent = isShimLost ? 'shim' : kind === 'unavailable' ? 'supervisor' : undefined;
  return new EngineError(kind, silent === undefined ? text : `the ${silent} does not answer: ${text}`, {
    cause,
    details: {
      method,
      grpcCode: code,
      ...(isRuntimeError && { runtimeError: true }),
      ...(isShimLost && { shimLost: true }),
    },
  });
}

function tellsOfLostShim(text: string): boolean {
  if (text.includes(runtimeMark)) return false;
  return lostShimEnds.some((end) => text.endsWith(end)) || text.includes(unreachableShim);
}

/** Tells whether the connection broke during a call: then nobody knows how far containerd came with it. */
export function isBrokenOff(error: unknown): boolean {
  return isEngineError(error, 'unavailable') && error.details?.['grpcCode'] === Status.UNAVAILABLE;
}

/** Tells whether something of the name exists already. */
export function isTaken(error: unknown): boolean {
  return isEngineError(error, 'conflict') && error.details?.['grpcCode'] === Status.ALREADY_EXISTS;
}

/** Tells whether containerd could not reach the shim of the task, which has ended or will be ended by containerd. */
export function isShimLost(error: unknown): error is EngineError {
  return isEngineError(error) && error.details['shimLost'] === true;
}

function isServiceError(error: unknown): error is ServiceError {
  return error instanceof Error && 'code' in error && typeof error.code === 'number' && 'details' in error;
}
