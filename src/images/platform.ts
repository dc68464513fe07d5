/** Tells whether an image is for the platform that a client names. */
import { notFound } from '../errors/engine-error.js';
import type { Image } from '../ports/images.js';
import { canRun, formatPlatform, hostPlatform, type Platform } from '../registry/platform.js';

/** Returns the platform in the configuration; an old image that names none is for the host's. */
function platformOf({ config: { os, architecture, variant } }: Image): Platform {
  return architecture ? { os: os || 'linux', architecture, variant: variant ?? '' } : hostPlatform();
}

/** Returns a warning when an image is for another platform than the host's and the client did not name one. */
export function foreignPlatformWarning(image: Image): string | undefined {
  const own = platformOf(image);
  const host = hostPlatform();
  if (canRun(host, own)) return undefined;
  return (
    `The requested image's platform (${formatPlatform(own)}) does not match the detected host platform ` +
    `(${formatPlatform(host)}) and no specific platform was requested`
  );
}

/** Tells whether the platform can run an image. */
export function isFor(image: Image, wanted: Platform): boolean {
  return canRun(wanted, platformOf(image));
}

/** Checks that the platform can run an image. @throws EngineError not-found when it cannot. */
export function requirePlatform(image: Image, wanted: Platform, name: string): void {
  const own = platformOf(image);
  if (canRun(wanted, own)) return;
  throw notFound(
    `image with reference ${name} was found but its platform (${formatPlatform(own)}) does not match the ` +
      `specified platform (${formatPlatform(wanted)})`,
    { code: 'PLATFORM_MISMATCH' },
  );
}
