/** Errors of copies into an image, in the words of BuildKit. */
import { type EngineError, invalid } from '../../errors/engine-error.js';
import { toText } from '../../storage/byte-path.js';

/** @param path is a byte string. */
export function notDirectory(path: string): EngineError {
  return invalid(`cannot copy to non-directory: ${toText(path)}`, { code: 'NOT_A_DIRECTORY' });
}

/** Links lead to each other. */
export function tooManyLinks(): EngineError {
  return invalid('too many links', { code: 'ELOOP' });
}
