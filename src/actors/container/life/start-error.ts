/** Turns a failed start of a container or an exec into the status, the text and the exit code that clients see. */
import {
  EngineError,
  invalid,
  messageOf,
  internal,
  isEngineError,
  type ErrorKind,
} from '../../../errors/engine-error.js';

/** Words of runc and of crun, which begins the kernel's with a capital letter. */
const NOT_FOUND = /executable file not found|no such file or directory/i;
/** Exit codes of a command that is not there, of one that cannot be executed, and of a start that failed otherwise. */
const EXIT_CODES = { missing: 127, notExecutable: 126, other: 128 };
/** The kernel or the supervisor answers with one of these texts to a setting that it refuses. */
const REFUSED_SETTING = [
  'invalid argument',
  'numerical result out of range',
  'value too large',
  'no such device',
  'is not a valid action',
  'is not a valid arch',
  'is not a valid operator',
  'failed to resolve runtime path',
];
const NOT_EXECUTABLE =
  /permission denied|(?:is|not) a directory|exec format error|open executable|not a regular file|not executable/i;
/** No file can have such a path. */
const NO_PATH = /file name too long|too many levels of symbolic links/i;

/** Rethrows a failure of the networks at a start with the words that clients look for. */
export function networkingFailed(error: unknown): never {
  if (!isEngineError(error) || error.kind === 'cancelled') throw error;
  const { kind, message, code, details } = error;
  throw new EngineError(kind, `failed to set up container networking: ${message}`, {
    cause: error,
    details,
    ...(code === undefined ? {} : { code }),
  });
}

/** Gives a runtime failure its exit code (127 command missing, 126 not executable, else 128) and its error kind. */
export function startError(error: unknown): EngineError {
  if (!isEngineError(error))
    return internal(messageOf(error), { cause: error, details: { exitCode: EXIT_CODES.other } });
  if (error.details['runtimeError'] !== true)
    return new EngineError(error.kind, error.message, {
      cause: error,
      details: { ...error.details, exitCode: EXIT_CODES.other },
    });
  const exitCode = NOT_FOUND.test(error.message)
    ? EXIT_CODES.missing
    : NOT_EXECUTABLE.test(error.message) || NO_PATH.test(error.message)
      ? EXIT_CODES.notExecutable
      : EXIT_CODES.other;
  const message = `failed to create task for container: ${error.message}`;
  const options = { cause: error, details: { exitCode } };
  return exitCode === EXIT_CODES.other && !REFUSED_SETTING.some((text) => error.message.toLowerCase().includes(text))
    ? internal(message, options)
    : invalid(message, options);
}

/**
 * Gives a failed start of an exec its exit code and its error kind. Only the runtime knows of the command; the texts of
 * others, such as that of a missing socket, say nothing about it.
 */
export function execError(error: unknown): EngineError {
  if (!isEngineError(error))
    return internal(messageOf(error), { cause: error, details: { exitCode: EXIT_CODES.other } });
  const { kind, message, details } = error;
  const withCode = (newKind: ErrorKind, exitCode: number): EngineError =>
    new EngineError(newKind, message, { cause: error, details: { exitCode } });
  if (details['runtimeError'] === true)
    return withCode('invalid', NOT_FOUND.test(message) ? EXIT_CODES.missing : EXIT_CODES.notExecutable);
  // The supervisor failed in the first case; in the other one the exec was refused before anybody was asked.
  return withCode(kind, details['grpcCode'] === undefined ? EXIT_CODES.notExecutable : EXIT_CODES.other);
}
