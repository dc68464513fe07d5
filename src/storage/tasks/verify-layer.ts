/** Worker task: checks that the files of a layer still make the tar that they came from. */
import { createHash } from 'node:crypto';
import { isEngineError } from '../../errors/engine-error.js';
import type { Digest } from '../../ports/storage.js';
import { assembleTar, type AssembleInput } from '../tar/assemble.js';

export function verifyLayer({ diffId, ...input }: AssembleInput & { readonly diffId: Digest }): boolean {
  const hash = createHash('sha256');
  try {
    for (const chunk of assembleTar(input)) hash.update(chunk);
  } catch (error) {
    if (isEngineError(error, 'data-loss')) return false;
    throw error;
  }
  return `sha256:${hash.digest('hex')}` === diffId;
}
