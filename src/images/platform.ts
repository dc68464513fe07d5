/** Whether an image is what a client means who names a platform. */
import { notFound } from '../errors/engine-error.js';
import type { Image } from '../ports/images.js';
import { canRun, formatPlatform, hostPlatform, type Platform } from '../registry/platform.js';

/** What the configuration says; an old one that says nothing means the host's. */
function platformOf({ config: { os, architecture, variant } }: Image): Platform {
  return architecture ? { os: os || 'linux', architecture, variant: variant ?? '' } : hostPlatform();
}

/** A line for who runs an image without saying for which platform, when it is for another one than the host's. */
export function foreignPlatformWarning(image: Image): string | undefined {
  const own = platformOf(image);
  const host = hostPlatform();
  if (canRun(host, own)) return undefined;
  return `The requested image's platform (${formatPlatform(own)}) does not match the detected host platform (${formatPlatform(host)}) and no specific platform was requested`;
}

/** @throws EngineError not-found for an image that the platform cannot run. */
export function requirePlatform(image: Image, wanted: Platform, name: string): void {
  const own = platformOf(image);
  if (canRun(wanted, own)) return;
  throw notFound(
    `image with reference ${name} was found but its platform (${formatPlatform(own)}) does not match the specified platform (${formatPlatform(wanted)})`,
    { code: 'PLATFORM_MISMATCH' },
  );
}
