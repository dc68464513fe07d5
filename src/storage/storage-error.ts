/** Translates failures of file system calls for the caller. */
import { dataLoss, type EngineError, internal, invalid, isEngineError, messageOf } from '../errors/engine-error.js';

/** These errno names blame this host and not the input. */
const HOST_TROUBLE = new Set([
  'ENOSPC',
  'EDQUOT',
  'EIO',
  'EROFS',
  'EMFILE',
  'ENFILE',
  'ENOMEM',
  'EPERM',
  'EACCES',
  'EBUSY',
  'EOPNOTSUPP',
  'ENOTSUP',
]);

const TEXT: Readonly<Record<string, string>> = {
  ENOSPC: 'no space left on device',
  EDQUOT: 'disk quota exceeded',
  EROFS: 'read-only file system',
};

// asm-generic/errno.h
const EDQUOT = 122;

/** Node has no name for a full quota. */
function codeOf({ code, errno }: NodeJS.ErrnoException): string | undefined {
  return errno === -EDQUOT ? 'EDQUOT' : code;
}

/**
 * Wraps an errno error with what was being done. Full disks and the like become `internal` with the errno's name as
 * code; an errno that only odd input can cause (too long names and so on) becomes `invalid`. EngineErrors that carry
 * no errno pass through.
 */
export function storageError(error: unknown, doing: string): EngineError {
  const code = codeOf(error as NodeJS.ErrnoException);
  if (isEngineError(error) && (error.kind !== 'internal' || code === undefined)) return error;
  const text = (code === undefined ? undefined : TEXT[code]) ?? messageOf(error);
  const make = code === undefined || HOST_TROUBLE.has(code) ? internal : invalid;
  return make(`${doing}: ${text}`, { cause: error, ...(code === undefined ? {} : { code }) });
}

/** The error for a layer whose files somebody deleted. */
export function layerGone(path: string): EngineError {
  return dataLoss(`the files of a layer, ${path}, were deleted: remove the images that have it and pull them again`, {
    code: 'LAYER_GONE',
  });
}
