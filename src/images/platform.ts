/** Whether an image is what a client means who names a platform. */
import { notFound } from '../errors/engine-error.js';
import type { Image } from '../ports/images.js';
import { canRun, formatPlatform, type Platform } from '../registry/platform.js';

/** @throws EngineError not-found for an image that the platform cannot run. */
export function requirePlatform({ config }: Image, wanted: Platform, name: string): void {
  const own = { os: config.os, architecture: config.architecture, variant: config.variant ?? '' };
  if (canRun(wanted, own)) return;
  throw notFound(
    `image with reference ${name} was found but its platform (${formatPlatform(own)}) does not match the specified platform (${formatPlatform(wanted)})`,
    { code: 'PLATFORM_MISMATCH' },
  );
}
