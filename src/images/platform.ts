/** Tells which platforms an image is for, and finds the image of the platform that a client names. */
import { notFound } from '../errors/engine-error.js';
import type { Image } from '../ports/images.js';
import { canRun, formatPlatform, hostPlatform, type Platform, preference } from '../registry/platform.js';

/** Returns the platform in the configuration; an old image that names none is for the host's. */
export function platformOf({ config: { os, architecture, variant } }: Pick<Image, 'config'>): Platform {
  return architecture ? { os: os || 'linux', architecture, variant: variant ?? '' } : hostPlatform();
}

/** Returns the images of all platforms that are here under the ID of an image. */
export function platformsOf(image: Image): readonly Image[] {
  return image.platforms ?? [image];
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

/** Returns the image of an ID that suits the platform best; undefined when it can run none of them. */
export function imageFor(image: Image, wanted: Platform): Image | undefined {
  let best: { readonly image: Image; readonly rank: number } | undefined;
  for (const one of platformsOf(image)) {
    const rank = preference(wanted, platformOf(one));
    if (rank !== undefined && (best === undefined || rank < best.rank)) best = { image: one, rank };
  }
  return best?.image;
}

/** Does the same. @throws EngineError not-found when the platform can run none of them. */
export function requirePlatform(image: Image, wanted: Platform, name: string): Image {
  const found = imageFor(image, wanted);
  if (found) return found;
  const reason = isOfIndex(image)
    ? `does not provide the specified platform (${formatPlatform(wanted)})`
    : `its platform (${formatPlatform(platformOf(image))}) does not match the specified platform ` +
      `(${formatPlatform(wanted)})`;
  throw notFound(`image with reference ${name} was found but ${reason}`, { code: 'PLATFORM_MISMATCH' });
}

/** True when the ID is that of an index, which may have images of several platforms. */
export function isOfIndex({ id, published }: Image): boolean {
  return published !== undefined && published.target.digest === id && published.own !== id;
}
