/** Platforms where the Engine API has them as JSON objects. */
import { invalid, notFound } from '../../errors/engine-error.js';
import type { Image } from '../../ports/images.js';
import { canRun, formatPlatform, type Platform } from '../../registry/platform.js';

/** Reads `{"os", "architecture", "variant"}`. Throws `invalid`. */
export function platformObject(text: string): Platform {
  let parsed: { os?: unknown; architecture?: unknown; variant?: unknown } | null;
  try {
    parsed = JSON.parse(text);
  } catch (error) {
    throw invalid(`invalid platform: ${text}`, { code: 'INVALID_PLATFORM', cause: error });
  }
  const { os, architecture, variant } = parsed ?? {};
  if (typeof os !== 'string' || typeof architecture !== 'string' || os === '' || architecture === '') {
    throw invalid('invalid platform: both os and architecture must be provided', { code: 'INVALID_PLATFORM' });
  }
  return { os, architecture, variant: typeof variant === 'string' ? variant : '' };
}

/** Throws not-found for an image that the platform cannot run. */
export function requirePlatform({ config }: Image, wanted: Platform, name: string): void {
  const own = { os: config.os, architecture: config.architecture, variant: config.variant ?? '' };
  if (canRun(wanted, own)) return;
  throw notFound(
    `image with reference ${name} was found but its platform (${formatPlatform(own)}) does not match the specified platform (${formatPlatform(wanted)})`,
    { code: 'PLATFORM_MISMATCH' },
  );
}
