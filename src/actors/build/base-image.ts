/** The image of a FROM: the one that is here, or the one of its registry. */
import { EngineError, isEngineError } from '../../errors/engine-error.js';
import { imageFor } from '../../images/platform.js';
import { familiarString, parseReference, withDefaultTag } from '../../images/reference.js';
import type { FileImageStore } from '../../images/store.js';
import type { BuildRequest } from '../../ports/build.js';
import type { Image } from '../../ports/images.js';
import type { Platform } from '../../registry/platform.js';
import type { ProgressForm } from '../pull/pull-progress.js';
import type { Pulls } from '../pull/pulls.js';

export interface BaseImageDeps {
  readonly images: FileImageStore;
  readonly pulls: Pick<Pulls, 'pull'>;
}

export interface WantedImage {
  readonly name: string;
  readonly platform: Platform | undefined;
  /** Gets the lines of a pull. */
  readonly onLine: (line: string) => void;
  /** The form of these lines; absent: that of the classic stream. */
  readonly form?: ProgressForm;
}

/** @throws EngineError as a pull does. */
export async function baseImage(
  { images, pulls }: BaseImageDeps,
  { name, platform, onLine, form = 'classic' }: WantedImage,
  { pull, credentials }: Pick<BuildRequest, 'pull' | 'credentials'>,
  signal: AbortSignal,
): Promise<Image> {
  const present = pull ? undefined : find(images, name);
  const suitable = present && platform ? imageFor(present, platform) : present;
  if (suitable) return suitable;
  const reference = withDefaultTag(parseReference(name));
  const granted = await credentials(reference.domain);
  const progress = await pulls.pull({ reference, platform, credentials: granted }, signal, form);
  let last = '';
  for await (const line of progress) {
    last = typeof line === 'string' ? line : Buffer.from(line).toString();
    onLine(last);
  }
  if (progress.outcome === 'failed')
    throw new EngineError('internal', failureIn(last, form) ?? `failed to pull ${familiarString(reference)}`);
  const pulled = images.resolve(name);
  return (platform && imageFor(pulled, platform)) ?? pulled;
}

function find(images: FileImageStore, name: string): Image | undefined {
  try {
    return images.resolve(name);
  } catch (error) {
    if (isEngineError(error, 'not-found')) return undefined;
    throw error;
  }
}

function failureIn(line: string, form: ProgressForm): string | undefined {
  const last = line.trim().split('\n').at(-1) ?? '';
  try {
    const { error } = JSON.parse(last) as { readonly error?: unknown };
    const message: unknown = form === 'typed' ? (error as Record<string, unknown> | undefined)?.['message'] : error;
    return typeof message === 'string' ? message : undefined;
  } catch {
    // The line was cut or is none of a failure.
    return undefined;
  }
}
