/** Turns a failed start into the status, the text and the exit code that clients see. */
import { EngineError, invalid, messageOf, internal, isEngineError } from '../../../errors/engine-error.js';

const NOT_FOUND = /executable file not found|no such file or directory/;
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
const NOT_EXECUTABLE = /permission denied|is a directory|not a directory|exec format error/;

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
  if (!isEngineError(error)) return internal(messageOf(error), { cause: error, details: { exitCode: 128 } });
  if (error.details['runtimeError'] !== true)
    return new EngineError(error.kind, error.message, { cause: error, details: { ...error.details, exitCode: 128 } });
  const exitCode = NOT_FOUND.test(error.message) ? 127 : NOT_EXECUTABLE.test(error.message) ? 126 : 128;
  const message = `failed to create task for container: ${error.message}`;
  const options = { cause: error, details: { exitCode } };
  return exitCode === 128 && !REFUSED_SETTING.some((text) => error.message.includes(text))
    ? internal(message, options)
    : invalid(message, options);
}
