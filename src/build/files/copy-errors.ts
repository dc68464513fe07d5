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

/**
 * A directory is to be made where a file is, or below it.
 * @param path of the directory, with links followed. @param file is the part of it that is a file.
 */
export function fileOnTheWay(path: string, file: string): EngineError {
  const below = path.indexOf('/', file.length + 1);
  const next = path.slice(0, below < 0 ? undefined : below);
  const failed = path === file ? `mkdir ${toText(file)}` : `lstat ${toText(next)}`;
  return invalid(`${failed}: not a directory`, { code: 'NOT_A_DIRECTORY' });
}
