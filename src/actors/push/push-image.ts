/** Pushes an image for who needs its digest, and no lines of progress. */
import { EngineError } from '../../errors/engine-error.js';
import { familiarString } from '../../images/reference.js';
import type { PushRequest } from './push-request.js';
import type { Pushes } from './pushes.js';

interface Line {
  readonly error?: unknown;
  readonly aux?: { readonly Digest?: unknown };
}

/** Resolves with the digest of the manifest. @throws EngineError with the words of the push. */
export async function pushImage(
  pushes: Pick<Pushes, 'push'>,
  request: PushRequest,
  signal: AbortSignal,
): Promise<string> {
  let digest: string | undefined;
  let failure: string | undefined;
  for await (const text of await pushes.push(request, signal)) {
    for (const line of text.split('\n').filter((one) => one.trim() !== '')) {
      const { error, aux } = JSON.parse(line) as Line;
      if (typeof error === 'string') failure = error;
      if (typeof aux?.Digest === 'string') digest = aux.Digest;
    }
  }
  if (failure !== undefined || digest === undefined)
    throw new EngineError('internal', failure ?? `failed to push ${familiarString(request.reference)}`);
  return digest;
}
