/** Pushes an image for who needs its digest, and no lines of progress. */
import { cancelled, EngineError } from '../../errors/engine-error.js';
import { familiarString } from '../../images/reference.js';
import type { PushRequest } from './push-request.js';
import type { Pushes } from './pushes.js';

interface Line {
  readonly error?: unknown;
  readonly aux?: { readonly Digest?: unknown };
}

/** Resolves with the digest of the manifest. @throws EngineError with the words of the push, cancelled on abort. */
export async function pushImage(
  pushes: Pick<Pushes, 'push'>,
  request: PushRequest,
  signal: AbortSignal,
): Promise<string> {
  let digest: string | undefined;
  let failure: string | undefined;
  const texts = await pushes.push(request, signal);
  // A registry that does not answer would have the reader wait with it.
  const leave = (): void => void texts.return?.();
  signal.addEventListener('abort', leave, { once: true });
  // An abort in the turn in which the push is joined has told nobody yet.
  if (signal.aborted) leave();
  try {
    for await (const text of texts) {
      for (const line of text.split('\n').filter((one) => one.trim() !== '')) {
        const { error, aux } = JSON.parse(line) as Line;
        if (typeof error === 'string') failure = error;
        if (typeof aux?.Digest === 'string') digest = aux.Digest;
      }
    }
  } finally {
    signal.removeEventListener('abort', leave);
  }
  if (signal.aborted) throw cancelled('the push was given up');
  if (failure !== undefined || digest === undefined)
    throw new EngineError('internal', failure ?? `failed to push ${familiarString(request.reference)}`);
  return digest;
}
